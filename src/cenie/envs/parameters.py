"""Levels that differ in a few numbers, and the domain that such levels make.

Everything goes through the vector of these numbers: to generate is to draw one, to edit is to move one, and
a level is read from JSON by decoding one.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cenie.envs.base import Domain, Environment, ParameterSpace, Suite, SuiteEntry, stack_same_shapes
from cenie.records import Level

SMALL = 0.1
"""Share of a range by which an edit moves a number at most, and in which simple levels lie."""

Range = tuple[int | float, int | float]
"""The least and the largest value of a number."""

_LARGEST_WHOLE = 2**24
"""Whole numbers up to here are told apart by a vector of 32-bit floats."""

_LARGEST_FLOAT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Parameters:
    """Which numbers of a level vary, and between which bounds.

    Attributes:
        default: A level, a dataclass or dict of arrays; what does not vary is as in this level.
        ranges: A lower and an upper bound for each field that varies. Whole numbers stay whole.
        derive: Returns a level in which whatever follows from the varied fields is set: a total mass, say.

    Raises:
        ValueError: There is no range, a field does not exist or is no single number, or bounds are not in
            order.
    """

    default: Level
    ranges: Mapping[str, Range]
    derive: Callable[[Level], Level] | None = None

    def __post_init__(self) -> None:
        fields = _fields(self.default)
        problems = [
            problem for name, bounds in self.ranges.items() for problem in _problems(name, bounds, fields)
        ]
        if not self.ranges:
            problems = ["ranges: must name at least one field of the level"]
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def low(self) -> np.ndarray:
        """The lower bounds [d]."""
        return np.array([low for low, _ in self.ranges.values()], np.float32)

    @property
    def high(self) -> np.ndarray:
        """The upper bounds [d]."""
        return np.array([high for _, high in self.ranges.values()], np.float32)

    def encode(self, level: Level) -> Float[Array, " d"]:
        """Read the numbers that vary.

        Args:
            level: A level.

        Returns:
            Its numbers, float32 [d], in the order of `ranges`.
        """
        fields = _fields(level)
        return jnp.stack([jnp.asarray(fields[name], jnp.float32) for name in self.ranges])

    def decode(self, point: Float[Array, " d"]) -> Level:
        """Make the level with these numbers.

        Args:
            point: Numbers [d], in the order of `ranges`.

        Returns:
            The level; all else is as in `default`.
        """
        fields, changed = _fields(self.default), {}
        for name, number in zip(self.ranges, point):
            dtype = fields[name].dtype
            whole = jnp.issubdtype(dtype, jnp.integer)
            changed[name] = (jnp.round(number) if whole else number).astype(dtype)
        level = _replaced(self.default, changed)
        return level if self.derive is None else self.derive(level)

    def generate(self, key: PRNGKeyArray) -> Level:
        """Draw all numbers uniformly from their ranges.

        Args:
            key: Consumed.

        Returns:
            The level.
        """
        # Whole numbers get half a step on both sides: the first and the last are as likely as the others.
        margin = 0.5 * self._whole
        point = jax.random.uniform(key, self.low.shape, minval=self.low - margin, maxval=self.high + margin)
        return self.decode(jnp.clip(point, self.low, self.high))

    def generate_simple(self, key: PRNGKeyArray) -> Level:
        """Draw all numbers close to the default level's.

        Args:
            key: Consumed.

        Returns:
            The level.
        """
        reach = 0.5 * SMALL * (self.high - self.low)
        away = jax.random.uniform(key, self.low.shape, minval=-reach, maxval=reach)
        return self.decode(jnp.clip(self.encode(self.default) + away, self.low, self.high))

    def edit(self, key: PRNGKeyArray, level: Level) -> Level:
        """Move one of the numbers a little, and back inwards where it would leave its range.

        Args:
            key: Consumed.
            level: The level to change.

        Returns:
            The changed level.
        """
        which_key, size_key = jax.random.split(key)
        which = jnp.arange(len(self.ranges)) == jax.random.randint(which_key, (), 0, len(self.ranges))
        move = jax.random.uniform(size_key, minval=-1.0, maxval=1.0) * SMALL * (self.high - self.low)
        # A whole number that moves by less than one would stay where it is.
        move = jnp.where(self._whole & (jnp.abs(move) < 1.0), jnp.where(move < 0.0, -1.0, 1.0), move)
        old = self.encode(level)
        moved = old + jnp.where(which, move, 0.0)
        inside = (moved >= self.low) & (moved <= self.high)
        back = old - jnp.where(which, move, 0.0)
        return self.decode(jnp.clip(jnp.where(inside, moved, back), self.low, self.high))

    def statistics(self, level: Level) -> dict[str, Array]:
        """Describe a level for the logs.

        Args:
            level: A level.

        Returns:
            The numbers by their names, each an array [].
        """
        return dict(zip(self.ranges, self.encode(level)))

    def to_json(self, level: Level) -> dict[str, float]:
        """Write the numbers by their names; all else is the same in every level.

        Args:
            level: A level.

        Returns:
            A JSON object.
        """
        return dict(zip(self.ranges, np.asarray(self.encode(level)).tolist()))

    def from_json(self, data: Any) -> Level:
        """Read the level of `to_json`. Numbers may lie outside of their ranges, as in held-out levels.

        Args:
            data: A JSON object with all the numbers that vary.

        Returns:
            The level.

        Raises:
            ValueError: A number is missing, is not finite, or is not whole where it must be; or there is a
                name too many.
        """
        if not isinstance(data, Mapping) or set(data) != set(self.ranges):
            raise ValueError(f"a level must have the numbers {', '.join(self.ranges)}, got {data!r}")
        for name, number in data.items():
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if not is_number or not abs(number) <= _LARGEST_FLOAT:
                raise ValueError(f"{name}: must be a finite number, got {number!r}")
        for name, whole in zip(self.ranges, self._whole):
            if whole and (data[name] != round(data[name]) or abs(data[name]) > _LARGEST_WHOLE):
                raise ValueError(f"{name}: must be a whole number, got {data[name]!r}")
        return self.decode(jnp.asarray([data[name] for name in self.ranges], jnp.float32))

    def extremes(self) -> list[tuple[str, str, Level]]:
        """The default level, and those in which one number lies at an end of its range.

        Returns:
            The name of the number, the end, and the level.
        """
        default = np.asarray(self.encode(self.default))
        levels = [("default", "default", default)]
        for index, name in enumerate(self.ranges):
            for end, bound in (("low", self.low), ("high", self.high)):
                levels.append((name, end, np.where(np.arange(len(default)) == index, bound, default)))
        return [(name, end, self.decode(jnp.asarray(point))) for name, end, point in levels]

    def space(self) -> ParameterSpace:
        """The levels as points of a box.

        Returns:
            The box, between the bounds of `ranges`.
        """
        return ParameterSpace(self.low, self.high, self.encode, self.decode)

    @property
    def _whole(self) -> np.ndarray:
        fields = _fields(self.default)
        return np.array([jnp.issubdtype(fields[name].dtype, jnp.integer) for name in self.ranges])


def parameter_domain(
    name: str,
    environment: Environment,
    parameters: Parameters,
    *,
    bounds: tuple[float, float] | None = None,
) -> Domain:
    """The domain of an environment whose levels differ in a few numbers.

    Held-out suites: `extremes` has the default level and each number at both ends of its range, `random`
    draws from the ranges.

    Args:
        name: The name of the domain.
        environment: The environment, whose levels are like `parameters.default`.
        parameters: The numbers that vary.
        bounds: Two returns that count as 0 and 1 in evaluations; without them, a score is whether an episode
            was solved.

    Returns:
        The domain, with generators, edits, suites and JSON.
    """

    def draw(rng: np.random.Generator) -> Level:
        return parameters.generate(jax.random.key(rng.integers(2**31)))

    entries = [
        SuiteEntry(level, variant, lambda rng, fixed=fixed: fixed, bounds)
        for level, variant, fixed in parameters.extremes()
    ]
    return Domain(
        name=name,
        environment=environment,
        generators={"uniform": parameters.generate, "near-default": parameters.generate_simple},
        roles={"random": "uniform", "simple": "near-default"},
        edit=parameters.edit,
        statistics=parameters.statistics,
        suites={
            "extremes": lambda: Suite("extremes", entries),
            "random": lambda: Suite("random", [SuiteEntry("random", "random", draw, bounds)]),
        },
        stack=stack_same_shapes,
        to_json=parameters.to_json,
        from_json=parameters.from_json,
        parameters=parameters.space(),
    )


def _fields(level: Level) -> dict[str, Any]:
    if isinstance(level, Mapping):
        return dict(level)
    if dataclasses.is_dataclass(level):
        return {field.name: getattr(level, field.name) for field in dataclasses.fields(level)}
    raise ValueError(f"default: must be a dataclass or a dict of arrays, got {type(level).__name__}")


def _replaced(level: Level, changed: Mapping[str, Array]) -> Level:
    if isinstance(level, Mapping):
        return {**level, **changed}
    return dataclasses.replace(level, **changed)


def _problems(name: str, bounds: Any, fields: Mapping[str, Any]) -> list[str]:
    """The problems of a range."""
    if name not in fields:
        return [f"ranges: the level has no field {name!r}, only {', '.join(fields)}"]
    field = fields[name]
    is_array = isinstance(field, jax.Array | np.ndarray | np.generic)
    if not is_array or field.ndim or field.dtype.kind not in "iuf":
        return [f"{name}: only a single number can vary, and it must be an array: see cenie.as_level"]
    try:
        low, high = map(float, bounds)
        in_order = -math.inf < low < high < math.inf
    except (TypeError, ValueError):
        in_order, low, high = False, 0.0, 0.0
    if not in_order:
        return [f"{name}: the range must be two finite numbers, the lower one first, got {bounds}"]
    if field.dtype.kind == "f":
        return []
    if low != round(low) or high != round(high) or max(-low, high) > _LARGEST_WHOLE:
        return [
            f"{name}: the ends of the range of a whole number must be whole and at most 2^24, got {bounds}"
        ]
    return []
