"""The names of the domains, and how others are found by `module:attribute`.

Loads nothing heavy: what `cenie domains` prints appears at once. A domain is declared in its own folder, and
loaded when it is asked for by its name.
"""

import functools
from typing import TYPE_CHECKING, Any

from cenie.settings import Problem, SettingsError, show

if TYPE_CHECKING:
    from cenie.envs.base import Domain

DOMAINS = {
    "maze": "13x13 mazes seen through a 5x5 egocentric window (Minigrid)",
    "walker": "a two-legged walker on terrains of eight parameters (BipedalWalker)",
    "racing": "car races on tracks through twelve control points, seen from above (CarRacing)",
}
"""A line about each domain; the domain `NAME` is `cenie.envs.NAME.domain:NAME_domain`."""


def is_reference(name: Any) -> bool:
    """Whether this is the name of a domain outside of the library, `module:attribute`."""
    return isinstance(name, str) and ":" in name


def find_domain(name: Any) -> "Domain":
    """The domain of a name, with the defaults of its settings. Loads JAX, and starts no backend.

    Args:
        name: A name of `DOMAINS`, or `module:attribute`, whose module is then imported.

    Returns:
        The domain; always the same one for one of ours.

    Raises:
        SettingsError: There is none; the message says why.
    """
    if is_reference(name):
        from cenie.envs.loading import load

        return load(name)
    if not isinstance(name, str) or name not in DOMAINS:
        known = f"must be one of {', '.join(DOMAINS)}, got {show(name)}"
        raise SettingsError([Problem("domain", f"{known} (one of your own is named module:attribute)")])
    return _ours(name)


def is_ours(domain: "Domain") -> bool:
    """Whether a domain is the library's with the default settings, and no other of the same name."""
    return domain.name in DOMAINS and _ours(domain.name) is domain


@functools.cache
def _ours(name: str) -> "Domain":
    from cenie.envs.loading import load

    return load(f"cenie.envs.{name}.domain:{name}_domain")
