"""The two halves of every teacher: `ask` chooses levels, `tell` takes in what became of them.

A cycle plays one batch of levels. After a replay an editing teacher may ask for the edited levels in the
next cycle, so that children are played by the student that has learned from their parents.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cenie.novelty.devices import side_by_side
from cenie.teach import buffer as buffers
from cenie.teach import novelty as novelties
from cenie.teach.buffer import BufferState
from cenie.teach.curriculum import (
    EDIT,
    NEW,
    REPLAY,
    Assignment,
    Curriculum,
    Editing,
    Replay,
    ReplayState,
    TeacherState,
)
from cenie.teach.novelty import Points
from cenie.teach.scores import ScoreInputs, episode_outcomes
from cenie.types import Advantages, Level, Rollout

MAX_RETURN = "max_return"
PARENTS = 4
"""How many levels of a batch the `easy` and `hard` choices of parents keep (as in the original code)."""


def init(curriculum: Curriculum, num_levels: int, points_shape: tuple[int, int] = (0, 0)) -> TeacherState:
    """The state of a teacher that has not seen anything yet.

    `points_shape`: how many points a level has in `tell`, and of how many numbers, if novelty counts.
    """
    replay = curriculum.replay
    if replay is None:
        return TeacherState()
    example = curriculum.generate(jax.random.key(0))
    names = [score.name for score in replay.scores]
    return TeacherState(
        ReplayState(
            buffer=buffers.init(example, replay.config.capacity, names, (MAX_RETURN,)),
            edit_due=jnp.asarray(False),
            replayed=jnp.zeros(num_levels, jnp.int32),
            replayed_score=jnp.zeros(num_levels),
        ),
        None if curriculum.novelty is None else novelties.init(curriculum.novelty, *points_shape),
    )


def ask(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Assignment, TeacherState]:
    """Choose the `num_levels` levels of the next cycle. Consumes the key."""
    replay, editing, past = curriculum.replay, curriculum.editing, state.replay
    if replay is None or past is None:
        return _ask_new(curriculum, key, num_levels), state
    decide_key, levels_key = jax.random.split(key)
    replays = buffers.should_replay(past.buffer, decide_key, replay.config)
    kind = jnp.where(past.edit_due, EDIT, jnp.where(replays, REPLAY, NEW))
    mix = current_mix(curriculum, state)
    branches = [
        lambda: (_ask_new(curriculum, levels_key, num_levels), past.buffer),
        lambda: _ask_replay(replay, mix, past.buffer, levels_key, num_levels),
    ]
    if editing is not None:
        branches.append(lambda: (_ask_edited(editing, past, levels_key), past.buffer))
    assignment, buffer = jax.lax.switch(kind, branches)
    return assignment, eqx.tree_at(lambda s: s.replay.buffer, state, buffer)


def tell(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    rollout: Rollout,
    advantages: Advantages,
    gamma: float,
    key: PRNGKeyArray,
    points: Points | None = None,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, dict[str, Array]]:
    """Take in the rollout of an assignment; returns the scalars worth logging. Consumes the key.

    A curriculum with novelty needs the `points` that the student met; the devices of the `mesh`, if there
    is one, share the work on them.

    Three steps, of which only the second, small one depends on the length of the rollout: a loop whose
    rollouts have many lengths compiles the other two once.
    """
    if curriculum.replay is None:
        return state, {"kind": assignment.kind}
    known = recall(curriculum, state, assignment, points)
    verdict = judge(curriculum, known, rollout, advantages, gamma)
    return absorb(curriculum, state, assignment, known, verdict, key, points, mesh)


class Known(eqx.Module):
    """What the teacher knows of the levels of an assignment before it sees what became of them.

    `max_return` is the best return so far, -inf for new levels; `together` says which columns play the
    same level and so share it. `novelty` is that of the points under the model of earlier experience.
    """

    max_return: Float[Array, " n"]
    together: Bool[Array, "n n"]
    novelty: Float[Array, " n"] | None


class Verdict(eqx.Module):
    """What a rollout says of its levels: a column per score, and what may be believed and remembered."""

    scores: Float[Array, "n s"]
    completed: Bool[Array, " n"]
    max_return: Float[Array, " n"]


def recall(
    curriculum: Curriculum, state: TeacherState, assignment: Assignment, points: Points | None = None
) -> Known:
    """The first step of `tell`, for a curriculum with replay: look up the levels, and measure novelty."""
    assert state.replay is not None
    buffer, replayed = state.replay.buffer, assignment.kind == REPLAY
    remembered = jnp.where(replayed, buffer.extras[MAX_RETURN][assignment.slots], -jnp.inf)
    # A level that was drawn several times has one best return.
    together = (assignment.slots[:, None] == assignment.slots) & replayed | jnp.eye(
        len(remembered), dtype=bool
    )
    novel = None
    if curriculum.novelty is not None and state.novelty is not None:
        novel = novelties.score(curriculum.novelty, state.novelty, _required(points))
    return Known(remembered, together, novel)


def judge(
    curriculum: Curriculum, known: Known, rollout: Rollout, advantages: Advantages, gamma: float
) -> Verdict:
    """The second step: score the rollout. The only one that looks at single steps."""
    assert curriculum.replay is not None
    outcomes = episode_outcomes(rollout)
    best_now = jnp.where(known.together, outcomes.max_return, -jnp.inf).max(axis=1)
    max_return = jnp.maximum(known.max_return, best_now)
    replay = curriculum.replay
    inputs = ScoreInputs(rollout, advantages, max_return, gamma, replay.config.repeated, known.novelty)
    scores = jnp.stack([score.compute(inputs) for score in replay.scores], axis=1)
    return Verdict(scores, outcomes.completed, max_return)


def absorb(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    known: Known,
    verdict: Verdict,
    key: PRNGKeyArray,
    points: Points | None = None,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, dict[str, Array]]:
    """The third step: change the buffer, and let the points into the model. Consumes the key."""
    replay, past = curriculum.replay, state.replay
    assert replay is not None
    assert past is not None
    buffer, scores, valid, novel = past.buffer, verdict.scores, verdict.completed, known.novelty
    replayed, extras = assignment.kind == REPLAY, {MAX_RETURN: verdict.max_return}
    if curriculum.editing is not None and curriculum.editing.children > 1 and novel is not None:
        # A child without a score cannot enter, however novel it is.
        best = novelties.most_novel(jnp.where(valid, novel, -jnp.inf), curriculum.editing.children)
        valid &= best | (assignment.kind != EDIT)
    mix = current_mix(curriculum, state)

    # Every device does all of this, which is little, rather than wait for the others at every step.
    present, inserted, duplicates = side_by_side(
        mesh, lambda _, *seen: _store(replay, *seen), buffer, assignment, scores, valid, extras, mix
    )
    edit_due = jnp.asarray(False)
    if curriculum.editing is not None:
        edit_due = replayed & jax.random.bernoulli(key, curriculum.editing.probability)
    slots = jnp.where(replayed, assignment.slots, past.replayed)
    metrics = {"kind": assignment.kind, "inserted": inserted, "duplicates": duplicates}
    remembers = None
    if curriculum.novelty is not None and state.novelty is not None:
        novelty, drawn = curriculum.novelty, assignment.slots
        change = jnp.where(valid & replayed, jnp.abs(scores[:, 0] - buffer.scores[drawn, 0]), 0.0)
        remembers = novelties.adapt(
            novelty.alpha, replay.config.priority, state.novelty, buffer, replayed, drawn, change
        )
        # What the student learns from; and, while there is nothing to replay, what it meets.
        enters = replayed | buffers.is_filling(buffer, replay.config)
        # Not `key` itself: without novelty the same decisions are made with the same bits.
        fit_key = jax.random.fold_in(key, 1)
        remembers = novelties.learn(novelty, remembers, _required(points), enters, fit_key, mesh)
        metrics |= novelties.metrics(novelty, remembers, present)
    after = TeacherState(ReplayState(present, edit_due, slots, scores[:, 0]), remembers)
    return after, {**metrics, **_buffer_metrics(replay, current_mix(curriculum, after), present)}


def _store(
    replay: Replay,
    buffer: BufferState,
    assignment: Assignment,
    scores: Float[Array, "n s"],
    valid: Bool[Array, " n"],
    extras: dict[str, Float[Array, " n"]],
    mix: Float[Array, " s"],
) -> tuple[BufferState, Int[Array, ""], Int[Array, ""]]:
    """The buffer after a rollout, how many levels entered it, and how many were there already."""

    def update() -> tuple[BufferState, Array, Array]:
        updated = buffers.update(buffer, assignment.slots, scores, valid, extras, replay.config.repeated)
        return updated, jnp.zeros((), jnp.int32), buffers.count_repeats(assignment.slots)

    def insert() -> tuple[BufferState, Array, Array]:
        lineage = assignment.parents, assignment.generations
        offered = (assignment.levels, scores, valid, extras, *lineage)
        inserted, info = buffers.insert(buffer, *offered, mix, replay.config)
        return inserted, info.inserted.sum(), (info.duplicates | info.copies).sum()

    return jax.lax.cond(assignment.kind == REPLAY, update, insert)


def current_mix(curriculum: Curriculum, state: TeacherState) -> Float[Array, " s"]:
    """The present weights of the scores when levels are drawn."""
    assert curriculum.replay is not None
    if curriculum.novelty is None or state.novelty is None:
        return curriculum.replay.mix
    alpha = novelties.alpha(curriculum.novelty.alpha, state.novelty)
    return jnp.stack([1.0 - alpha, alpha])


def select_parents(slots: Int[Array, " n"], score: Float[Array, " n"], editing: Editing) -> Int[Array, " n"]:
    """The slots whose levels are edited, one for each child."""
    if editing.parents == "batch":
        return slots
    count = slots.shape[0]
    # A level drawn several times is one candidate, unless there are too few different ones.
    repeated = jnp.tril(slots[:, None] == slots, -1).any(axis=1)
    value = score if editing.parents == "easy" else -score
    order = jnp.lexsort((value, repeated))
    chosen = slots[order[: min(PARENTS, count)]]
    return chosen[jnp.arange(count) % chosen.shape[0]]


def _ask_new(curriculum: Curriculum, key: PRNGKeyArray, num_levels: int) -> Assignment:
    levels = jax.vmap(curriculum.generate)(jax.random.split(key, num_levels))
    nothing = jnp.zeros(num_levels, jnp.int32)
    learn = jnp.asarray(curriculum.learn_on_new)
    return Assignment(jnp.asarray(NEW), levels, learn, nothing, nothing - 1, nothing)


def _required(points: Points | None) -> Points:
    if points is None:
        raise ValueError("a curriculum with novelty needs the points that the student met")
    return points


def _ask_replay(
    replay: Replay, mix: Float[Array, " s"], buffer: BufferState, key: PRNGKeyArray, num_levels: int
) -> tuple[Assignment, BufferState]:
    slots, buffer = buffers.sample(buffer, key, num_levels, mix, replay.config.priority)
    return Assignment(
        kind=jnp.asarray(REPLAY),
        levels=buffers.levels_at(buffer, slots),
        learn=jnp.asarray(True),
        slots=slots,
        parents=buffer.parents[slots],
        generations=buffer.generations[slots],
    ), buffer


def _ask_edited(editing: Editing, past: ReplayState, key: PRNGKeyArray) -> Assignment:
    slots = select_parents(past.replayed, past.replayed_score, editing)
    slots = jnp.repeat(slots, editing.children)[: slots.shape[0]]
    parents: Level = buffers.levels_at(past.buffer, slots)
    return Assignment(
        kind=jnp.asarray(EDIT),
        levels=jax.vmap(editing.edit)(jax.random.split(key, slots.shape[0]), parents),
        learn=jnp.asarray(False),
        slots=jnp.zeros_like(slots),
        parents=past.buffer.ids[slots],
        generations=past.buffer.generations[slots] + 1,
    )


def _buffer_metrics(replay: Replay, mix: Float[Array, " s"], buffer: BufferState) -> dict[str, Array]:
    """The buffer in numbers; `weighted` means are over the probabilities of replay."""
    chances = buffers.probabilities(buffer, mix, replay.config.priority)
    share = buffer.mask / jnp.maximum(buffer.size, 1)
    metrics = {
        "buffer_size": buffer.size,
        "buffer_fill": buffer.size / buffer.capacity,
        "generation": jnp.sum(share * buffer.generations),
        "generation_weighted": jnp.sum(chances * buffer.generations),
        "score_age": jnp.sum(share * buffer.staleness),
        "largest_chance": jnp.max(chances),
    }
    for index, name in enumerate(buffer.score_names):
        column = buffer.scores[:, index]
        metrics[name] = jnp.sum(share * column)
        metrics[f"{name}_weighted"] = jnp.sum(chances * column)
        metrics[f"{name}_total"] = jnp.sum(jnp.where(buffer.mask, column, 0.0))
    return metrics
