"""The arguments of `Coverage` by name: what they may be, and what is wrong with them."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any, get_args

from cenie.novelty.config import CoverageConfig, MixtureConfig, plain_value, read_coverage
from cenie.settings import Problem, SettingsError, show

_SEEDS = 2**32
"""JAX looks at 32 bits of a seed, so that larger ones would repeat these."""

TWO_SEEDS = "seed and random_state are two names of one number: give one of them"


def defaults(kind: Any) -> dict[str, Any]:
    """All settings of a kind by name, the seed included; for an unknown kind, the settings of a mixture."""
    records = {record().kind: record for record in get_args(CoverageConfig)}
    record = records.get(kind, MixtureConfig) if isinstance(kind, str) else MixtureConfig
    return asdict(record()) | {"kind": kind, "seed": 0}


def unknown(kind: Any, names: Collection[str]) -> str | None:
    """A message about names that are no settings of this kind of coverage; None if all are."""
    known = defaults(kind)
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    close = {match: None for name in unknown for match in difflib.get_close_matches(name, known, n=1)}
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(known)}"
    return f"unknown settings: {', '.join(unknown)}; {hint}"


def checked(params: Mapping[str, Any]) -> tuple[CoverageConfig, int]:
    """Read all arguments.

    Args:
        params: The settings by name, among them `kind` and `seed`.

    Returns:
        The record of settings and the seed.

    Raises:
        ValueError: With everything that is wrong.
    """
    problems: list[Problem] = []
    config, seed = None, 0
    try:
        config = read_coverage({name: value for name, value in params.items() if name != "seed"})
    except SettingsError as error:
        problems += error.problems
    try:
        seed = checked_seed(params["seed"])
    except ValueError as error:
        problems.append(Problem("seed", str(error)))
    if config is None or problems:
        raise ValueError("; ".join(map(str, problems)))
    return config, seed


def checked_seed(value: Any) -> int:
    """A seed as a plain number; `ValueError` if it is none."""
    number = plain_value(value)
    if type(number) is not int or not 0 <= number < _SEEDS:
        raise ValueError(f"must be a whole number from 0 to {_SEEDS - 1}, got {show(value)}")
    return number
