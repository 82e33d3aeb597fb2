"""The record of a cycle for later readers of the run: a row for each level, and a sample of points.

Nothing here has an influence on training: all randomness comes from keys of its own.
"""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cenie.records import Rollout
from cenie.replay.outcomes import Outcomes
from cenie.spaces import Space
from cenie.student.features import rollout_features

Columns = dict[str, Array]
"""A number for each level of a batch, by name."""

_DRAW = 0x706F696E
"""Folded into the key of a cycle. Small numbers would give the keys that `jax.random.split` gives."""


_Numbers = Array | np.ndarray


class PointSample(eqx.Module):
    """State-action points of the first student: from which cycle, level of its batch and step each one is.

    `kind` says what the levels of that cycle were. `lots` are random numbers of [0, 1), by which the points
    of one cycle are merged with other cycles'. For several cycles, all is on the host.
    """

    values: Float[_Numbers, "s d"]
    cycle: Int[_Numbers, " s"]
    kind: Int[_Numbers, " s"]
    level: Int[_Numbers, " s"]
    step: Int[_Numbers, " s"]
    lots: Float[_Numbers, " s"] | None = None


class Record(eqx.Module):
    """`levels` has a row [students, n] for each student and level, `points` a sample of what was met, if
    one was asked for. Of several cycles, all of it is on the host."""

    levels: Columns | dict[str, np.ndarray]
    points: PointSample | None


def outcome_columns(outcomes: Outcomes) -> Columns:
    """The student's results on each level: means over completed episodes, NaN if there was none."""

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
    # One draw for everything: each is a program of its own to be compiled.
    uniform = jax.random.uniform(jax.random.fold_in(cycle_key, _DRAW), (3, count))
    level, step = ((part * size).astype(jnp.int32) for part, size in zip(uniform, rollout.reward.shape))
    # The drawn steps as levels of one step each: points of all steps would be made only to be left out.
    parts = rollout.features, rollout.action, rollout.reward
    drawn = [None if part is None else part[level, step][:, None] for part in parts]
    chosen = eqx.tree_at(lambda r: (r.features, r.action, r.reward), rollout, drawn)
    values = rollout_features(chosen, action_space)[:, 0]
    same = jnp.zeros(count, jnp.int32)
    return PointSample(values, same + cycle, same + kind, level, step, uniform[2])


def merged(samples: Sequence[PointSample]) -> PointSample:
    """A sample of several cycles, in which each has the same share; on the host, as each cycle's sample is.

    A place takes the point of the next cycle with the chance 1 / n if that is the n-th one.
    """
    lots = np.stack([np.asarray(sample.lots) for sample in samples])
    takes = lots * np.arange(1, len(samples) + 1)[:, None] < 1.0
    last = len(samples) - 1 - np.argmax(takes[::-1], axis=0)
    parts = [dataclasses.replace(sample, lots=None) for sample in samples]
    return jax.tree.map(lambda *rows: np.stack(rows)[last, np.arange(len(last))], *parts)
