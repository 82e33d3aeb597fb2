"""The walker's level, and what the logs say about one."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from cenie.records import AnyArray

PARAMETERS = (
    "roughness",
    "pit_low",
    "pit_high",
    "stump_low",
    "stump_high",
    "stair_low",
    "stair_high",
    "stair_steps",
)
"""Heights and widths are in units of the distance of two terrain points."""

LOWEST = np.array([0, 0, 0, 0, 0, 0, 0, 1], np.float32)
HIGHEST = np.array([10, 10, 10, 5, 5, 5, 5, 9], np.float32)
"""Between what each parameter lies."""

NUM_SEEDS = 2**32

CLASSES = ("easy", "moderate", "challenging", "very_challenging", "extremely_challenging")
"""The number of the paper's four thresholds that a level reaches, in words."""

_ROUNDING = 1e-4
"""The tolerance below a threshold: edits add up steps in single precision, where 0.4 and 23 times 0.2 come to
less than 5."""


class WalkerLevel(eqx.Module):
    """Parameters of a terrain, and a seed that decides the rest: the terrain itself and the first push.

    A pair of a lowest and a highest size may be stored in any order; it is sorted where it is used, as the
    number of stair steps is rounded there. With `hardcore` the obstacles are as in gym's hardcore task,
    and only the roughness counts. `time_limit` is the length of an episode; it belongs to the level, so
    that one compiled program plays levels that differ in it.
    """

    parameters: Float[AnyArray, "*n 8"]
    seed: UInt32[AnyArray, "*n"]
    hardcore: Bool[AnyArray, "*n"]
    time_limit: Int[AnyArray, "*n"]


def make_level(
    seed: int, *, hardcore: bool = False, time_limit: int = 2000, **parameters: int | float
) -> WalkerLevel:
    """A level of host arrays from plain values; a parameter that is not named has its lowest value.

    Raises `ValueError` with every reason if it is not valid.
    """
    unknown = [name for name in parameters if name not in PARAMETERS]
    if unknown:
        raise ValueError(
            f"no parameters of a walker level: {', '.join(unknown)}; {', '.join(PARAMETERS)} are"
        )
    values = [parameters.get(name, lowest) for name, lowest in zip(PARAMETERS, LOWEST)]
    problems = [
        f"{name} must lie in {low:g} .. {high:g}, got {value:g}"
        for name, value, low, high in zip(PARAMETERS, values, LOWEST, HIGHEST)
        if not low <= value <= high
    ]
    if not 0 <= seed < NUM_SEEDS:
        problems.append(f"the seed must lie in 0 .. {NUM_SEEDS - 1}, got {seed}")
    if time_limit < 1:
        problems.append(f"the time limit must be at least 1, got {time_limit}")
    if problems:
        raise ValueError("not a valid walker level: " + "; ".join(problems))
    return WalkerLevel(
        np.array(values, np.float32),
        np.array(seed, np.uint32),
        np.array(hardcore, bool),
        np.array(time_limit, np.int32),
    )


def statistics(level: WalkerLevel) -> dict[str, Array]:
    """Scalars for the logs: the parameters, and the paper's class of difficulty as a number and as flags."""
    parameters = jnp.asarray(level.parameters)
    reached = difficulty(level)
    classes = {f"is_{name}": reached == number for number, name in enumerate(CLASSES)}
    return dict(zip(PARAMETERS, parameters)) | {"difficulty": reached} | classes


def difficulty(level: WalkerLevel) -> Int[Array, ""]:
    """The number of the paper's four thresholds that are reached; a pair counts by its larger number."""
    roughness, *sizes, _ = jnp.asarray(level.parameters)
    pit, stump, stair = jnp.max(jnp.stack(sizes).reshape(3, 2), axis=1)
    thresholds = jnp.array([2.4, 6.0, 4.5, 5.0]) - _ROUNDING
    return jnp.sum(jnp.stack([stump, pit, roughness, stair]) >= thresholds, dtype=jnp.int32)
