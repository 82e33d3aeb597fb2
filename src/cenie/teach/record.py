"""What a cycle leaves for those who look at the run later: a row for each level, and a sample of points.

Nothing here has an influence on training: all randomness comes from keys of its own.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cenie.novelty.points import rows_where
from cenie.spaces import Space
from cenie.student.features import state_action_features
from cenie.teach.played import Outcomes
from cenie.types import Rollout

Columns = dict[str, Array]
"""A number for each level of a batch, by name."""

_DRAW, _REPLACE = 0x706F696E, 0x6B656570
"""Folded into the key of a cycle. Small numbers would give the keys that `jax.random.split` gives."""


class PointSample(eqx.Module):
    """State-action points of the first student: from which cycle, level of its batch and step each one is.

    `kind` says what the levels of that cycle were.
    """

    values: Float[Array, "s d"]
    cycle: Int[Array, " s"]
    kind: Int[Array, " s"]
    level: Int[Array, " s"]
    step: Int[Array, " s"]


class Record(eqx.Module):
    """`levels` has a row [students, n] for each student and level, `points` a sample of what was met, if
    one was asked for. Of several cycles, the rows are on the host."""

    levels: Columns | dict[str, np.ndarray]
    points: PointSample | None


def outcome_columns(outcomes: Outcomes) -> Columns:
    """How the student fared on each level: means over completed episodes, NaN if there was none."""

    def mean(value: Float[Array, " n"]) -> Float[Array, " n"]:
        return jnp.where(outcomes.completed, value, jnp.nan)

    return {
        "episodes": outcomes.finished,
        "solved": mean(outcomes.solved / jnp.maximum(outcomes.finished, 1)),
        "return": mean(outcomes.mean_return),
        "length": mean(outcomes.mean_length),
    }


def stacked(rows: list[Columns], kind: Int[Array, ""]) -> Columns:
    """The columns of all students, [students, n]."""
    columns = {name: jnp.stack([row[name] for row in rows]) for name in rows[0]}
    wrong = [name for name, column in columns.items() if column.ndim != 2]
    if wrong:
        raise ValueError(f"a level must have one number of each name, not so: {', '.join(wrong)}")
    return columns | {"kind": jnp.broadcast_to(kind, columns["id"].shape)}


def draw_points(
    rollout: Rollout,
    action_space: Space,
    count: int,
    *,
    cycle: Int[Array, ""],
    kind: Int[Array, ""],
    cycle_key: PRNGKeyArray,
) -> PointSample:
    """`count` points of a rollout that was collected with its features, each drawn from all of them."""
    levels, steps = rollout.reward.shape
    level_key, step_key = jax.random.split(jax.random.fold_in(cycle_key, _DRAW))
    level = jax.random.randint(level_key, (count,), 0, levels)
    step = jax.random.randint(step_key, (count,), 0, steps)
    # The drawn steps as levels of one step each: points of all steps would be made only to be left out.
    parts = rollout.features, rollout.action, rollout.reward
    drawn = [None if part is None else part[level, step][:, None] for part in parts]
    chosen = eqx.tree_at(lambda r: (r.features, r.action, r.reward), rollout, drawn)
    values = state_action_features(chosen, action_space)[:, 0]
    same = jnp.zeros(count, jnp.int32)
    return PointSample(values, same + cycle, same + kind, level, step)


def merge_samples(
    kept: PointSample, new: PointSample, seen: Int[Array, ""], cycle_key: PRNGKeyArray
) -> PointSample:
    """A sample of `seen` cycles and of one more, in which each has the same share: a place takes the new
    point with the chance 1 / (seen + 1)."""
    count = kept.cycle.shape[0]
    replaces = jax.random.uniform(jax.random.fold_in(cycle_key, _REPLACE), (count,)) * (seen + 1) < 1.0
    return jax.tree.map(functools.partial(rows_where, replaces), new, kept)
