"""The two halves of every teacher: `ask` chooses levels, `tell` takes in what became of them.

A cycle plays one batch of levels. After a replay an editing teacher may ask for the edited levels in the
next cycle, so that children are played by the student that has learned from their parents.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cenie.records import Level, strongly_typed
from cenie.replay import buffer as buffers
from cenie.replay import weight
from cenie.replay.buffer import BufferState
from cenie.replay.columns import NOVELTY
from cenie.replay.outcomes import episode_outcomes, with_ends
from cenie.replay.play import EDIT, NEW, REPLAY, Play
from cenie.student.networks.base import Network
from cenie.teach import measure
from cenie.teach.curriculum import Assignment, Column, Curriculum, Editing, Replay, TeacherState
from cenie.teach.measure import Metrics
from cenie.teach.novelty import AccompanyingNovelty, ExaminingNovelty, most_novel
from cenie.teach.recording import Columns
from cenie.teach.source import Proposal
from cenie.xla.devices import replicate, side_by_side
from cenie.xla.tricks import Several, computed_once

_T = TypeVar("_T")

PARENTS = 4
"""The number of levels of a batch that the `easy` and `hard` choices of parents keep (as in the original
code)."""


def init(
    curriculum: Curriculum,
    num_levels: int,
    key: PRNGKeyArray,
    points_shape: tuple[int, int] = (0, 0),
    student: Network | None = None,
) -> TeacherState:
    """The state of a teacher that has not seen anything yet. Consumes the key.

    `points_shape`: how many points a level has in `tell`, and of how many numbers, if novelty counts.
    `student` is the first student before it has learned anything, for a novelty that keeps copies of it.
    """
    source = curriculum.source.init(key)
    replay, novelty = curriculum.replay, curriculum.novelty
    if replay is None:
        return strongly_typed(TeacherState(source))
    batch = jax.eval_shape(lambda key: curriculum.source.propose(source, key, 1)[0], key)
    example = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), batch)
    capacity, each = replay.config.capacity, range(curriculum.buffers)
    state = TeacherState(
        source=source,
        buffers=tuple(buffers.init(example, capacity, curriculum.columns) for _ in each),
        replayed=tuple(jnp.zeros(num_levels, jnp.int32) for _ in each),
        edit_due=jnp.zeros((), bool),
    )
    if replay.correction is not None:
        # Not `key` itself, which the source has.
        corrected = replay.correction.init(capacity, num_levels, jax.random.fold_in(key, 1))
        state = dataclasses.replace(state, correction=corrected)
    if novelty is not None:
        known = novelty.init(points_shape)
        if isinstance(novelty, AccompanyingNovelty):
            if student is None:
                raise ValueError(f"{type(novelty).__name__} keeps copies of the student, and there is none")
            known = novelty.with_student(known, student)
        state = dataclasses.replace(state, novelty=known, weight=weight.init(curriculum.alpha))
    return strongly_typed(state)


_Asked = tuple[list[Play], Proposal, list[tuple[Array, Array]]]
"""The result of asking: a batch for each buffer, the proposal, and when levels were last played."""


def ask(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Assignment, TeacherState]:
    """Choose the `num_levels` levels of the next cycle. Consumes the key.

    Args:
        curriculum: The method.
        state: The teacher's state.
        key: Decides between new levels and replay, and draws the levels.
        num_levels: The number of levels of a batch, n.

    Returns:
        What to play, and the state with which `tell` goes on.
    """
    replay, editing, edit_due = curriculum.replay, curriculum.editing, state.edit_due
    if replay is None or edit_due is None:
        batch, proposal = _propose(curriculum, state, key, num_levels)
        return _assignment(curriculum, state, jnp.asarray(NEW), [batch], proposal), state
    decide_key, levels_key = jax.random.split(key)
    replay_due = buffers.should_replay(state.buffers[0], decide_key, replay.config)
    kind = jnp.where(edit_due, EDIT, jnp.where(replay_due, REPLAY, NEW))
    mix = current_mix(curriculum, state)
    # Not `levels_key` itself for a second buffer, which would sample the same places.
    keys = [levels_key, *(jax.random.fold_in(levels_key, n) for n in range(1, curriculum.buffers))]
    no_proposal = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(lambda key: _propose(curriculum, state, key, num_levels)[1], levels_key),
    )
    # Sampling changes these alone: what goes through a branch as it is would be copied.
    ages = [(buffer.last_played, buffer.clock) for buffer in state.buffers]

    def new() -> _Asked:
        batch, proposal = _propose(curriculum, state, levels_key, num_levels)
        return [batch] * curriculum.buffers, proposal, ages

    def replayed() -> _Asked:
        sampled = [_sample(replay, mix, buffer, key, num_levels) for buffer, key in zip(state.buffers, keys)]
        aged = [(buffer.last_played, buffer.clock) for _, buffer in sampled]
        return [batch for batch, _ in sampled], no_proposal, aged

    def edited() -> _Asked:
        assert editing is not None
        parents = zip(state.buffers, state.replayed, keys)
        return [_edited(editing, replay, *each) for each in parents], no_proposal, ages

    branches = [new, replayed] if editing is None else [new, replayed, edited]
    batches, proposal, aged = jax.lax.switch(kind, branches)
    after = tuple(
        dataclasses.replace(buffer, last_played=last_played, clock=clock)
        for buffer, (last_played, clock) in zip(state.buffers, aged, strict=True)
    )
    assignment = _assignment(curriculum, state, kind, batches, proposal)
    return assignment, dataclasses.replace(state, buffers=after)


def tell(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    *,
    plays: tuple[Play, ...],
    key: PRNGKeyArray,
    student: Network | None = None,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, Metrics, list[Columns]]:
    """Take in what each student played, in four steps: locate, score, store, learn. Consumes the key.

    A loop whose rollouts have many lengths compiles only `score` for each of them: the other three, the large
    ones, do not look at single steps.

    Args:
        curriculum: The method.
        state: The state that `ask` returned.
        assignment: What was asked for.
        plays: What each student did on its levels. A curriculum with novelty needs the points of the first.
        key: Decides about edits, and is shared out to what learns.
        student: The first student, for a novelty that keeps copies of it.
        mesh: The devices that share the work.

    Returns:
        The state after the cycle, the scalars worth logging, and for each student what there is to say of
        each level that it played: lineage and scores.
    """
    if curriculum.replay is None:
        if curriculum.unfinished == "score":
            plays = tuple(_with_ends(play) for play in plays)
        after, metrics = _source_learned(curriculum, state, assignment, plays, key, mesh)
        return after, metrics, [_row(curriculum, play) for play in plays]
    plays = locate(curriculum, state, plays, student, mesh)
    plays = tuple(score(curriculum, play, state.correction, mesh) for play in plays)
    after, plays, counts = store(curriculum, state, plays, key, mesh)
    after, learned = learn(
        curriculum, state, stored=after, assignment=assignment, plays=plays, key=key, mesh=mesh
    )
    rows = [_row(curriculum, play, _of_student(after.buffers, number)) for number, play in enumerate(plays)]
    return after, counts | learned, rows


def locate(
    curriculum: Curriculum,
    state: TeacherState,
    plays: tuple[Play, ...],
    student: Network | None = None,
    mesh: Mesh | None = None,
) -> tuple[Play, ...]:
    """The first step of `tell`: look the levels up, and measure how novel they are.

    Args:
        curriculum: A method with replay.
        state: The state that `ask` returned.
        plays: What each student played; of the first one its points, if there is novelty.
        student: The first student.
        mesh: The devices that share the work.

    Returns:
        The plays with what is known of their levels from before: equal rows, slots, best returns. The first
        has its novelty among its scores, under what was learned from earlier batches.
    """

    def look_up(_: Any, buffer: BufferState, play: Play) -> Play:
        return jax.lax.cond(
            play.is_replayed,
            lambda: buffers.locate_sampled(buffer, play),
            lambda: buffers.locate(buffer, play),
        )

    # Every device does this and `store` in full, which is little, rather than wait for others at every step.
    looked_up = [
        side_by_side(mesh, look_up, buffer, play.without_steps())
        for buffer, play in zip(state.buffers, plays)
    ]
    plays = tuple(play.located_as(_of_student(looked_up, number)) for number, play in enumerate(plays))
    novelty, buffer = curriculum.novelty, state.buffers[0]
    if novelty is None:
        return plays
    first, *others = plays
    if first.points is None:
        raise ValueError("a curriculum with novelty needs the points of what the student played")
    if isinstance(novelty, ExaminingNovelty):
        findings = novelty.examine(state.novelty, first, buffer, student=student, mesh=mesh)
        first = dataclasses.replace(first, findings=findings)
    scores = {NOVELTY: novelty.score(state.novelty, first, buffer)}
    return dataclasses.replace(first, scores=scores), *others


def score(
    curriculum: Curriculum, play: Play, correction: PyTree[Any] = None, mesh: Mesh | None = None
) -> Play:
    """The second step: score a play. The only one that looks at single steps.

    Args:
        curriculum: A method with replay.
        play: A located play with its rollout and advantages; outcomes are computed if they are missing.
        correction: What a correction of scores has learned, if the method has one.
        mesh: The devices that share the work.

    Returns:
        The play with its outcomes, best returns, scores, and which rows count.

    Raises:
        ValueError: A score of one's own does not give one number for each level.
    """
    replay = curriculum.replay
    assert replay is not None
    if replay.config.unfinished == "score":
        play = _with_ends(play)
    elif play.outcomes is None:
        play = dataclasses.replace(play, outcomes=episode_outcomes(play.rollout))
    play = dataclasses.replace(play.with_best_return(), episodes=replay.config.repeated)

    def scored(play: Play) -> dict[str, Float[Array, " n"]]:
        found = {each.name: _one_per_level(each, each.score.compute(play), play) for each in replay.scores}
        if replay.correction is not None and correction is not None:
            added = replay.correction.score(correction, play, mesh)
            # The bits of the sum must not depend on what else is ranked.
            leading, added = computed_once((found[replay.leading], added), play.outcomes.finished)
            found[replay.leading] = leading + added
        return found | (play.scores or {})

    entry_scores = None
    if replay.config.repeated == "last":
        entry_scores = scored(dataclasses.replace(play, episodes="first"))
    scores = scored(play)
    valid, editing = play.outcomes.completed, curriculum.editing
    if editing is not None and editing.children > 1 and NOVELTY in scores:
        # A child without a score cannot enter, however novel it is.
        best = most_novel(jnp.where(valid, scores[NOVELTY], -jnp.inf), editing.children)
        valid &= best | (play.kind != EDIT)
    return dataclasses.replace(play, scores=scores, entry_scores=entry_scores, valid=valid)


def store(
    curriculum: Curriculum,
    state: TeacherState,
    plays: tuple[Play, ...],
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, tuple[Play, ...], Metrics]:
    """The third step: write replayed scores, or offer the levels a slot; and decide about edits. Consumes
    the key.

    Args:
        curriculum: A method with replay.
        state: The state that `ask` returned.
        plays: What each student played, located and scored.
        key: Decides whether the next cycle edits what was replayed.
        mesh: The devices. Each one does this in full.

    Returns:
        The state with the new buffers; the plays with the slots in which their levels are now; what to log.
    """
    replay = curriculum.replay
    assert replay is not None
    mix, replayed = current_mix(curriculum, state), plays[0].is_replayed
    new_buffers, slots, metrics = [], [], {}
    for number, (buffer, play) in enumerate(zip(state.buffers, plays)):
        after, stored_in, counts = side_by_side(
            mesh, lambda _, *arguments: _stored(replay, *arguments), buffer, play.without_steps(), mix
        )
        new_buffers.append(after)
        slots.append(stored_in)
        own_scores = [play.scores[column.name] for column in replay.scores]
        metrics |= _numbered(number, counts | measure.batch_metrics(own_scores, play.outcomes.completed))
    edit_due = jnp.zeros((), bool)
    if curriculum.editing is not None:
        edit_due = replayed & jax.random.bernoulli(key, curriculum.editing.probability)
    sampled = tuple(jnp.where(replayed, play.slot, before) for play, before in zip(plays, state.replayed))
    plays = tuple(
        dataclasses.replace(play, stored_in=_of_student(slots, number)) for number, play in enumerate(plays)
    )
    after = dataclasses.replace(state, buffers=tuple(new_buffers), replayed=sampled, edit_due=edit_due)
    return after, plays, metrics


def learn(
    curriculum: Curriculum,
    before: TeacherState,
    *,
    stored: TeacherState,
    assignment: Assignment,
    plays: tuple[Play, ...],
    key: PRNGKeyArray,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, Metrics]:
    """The last step: let novelty and its weight, the source and the correction learn. Consumes the key.

    Args:
        curriculum: A method with replay.
        before: The state that `ask` returned.
        stored: The state after `store`.
        assignment: What was asked for.
        plays: What each student played, located, scored and stored. Only a correction looks at their steps.
        key: Shared out to what learns.
        mesh: The devices that share the work.

    Returns:
        The state after the cycle, and what to log.
    """
    replay, after, metrics = curriculum.replay, stored, {}
    assert replay is not None
    if curriculum.novelty is not None:
        after, metrics = _novelty_learned(curriculum, before, after, plays[0], key, mesh)
    after, source_metrics = _source_learned(curriculum, after, assignment, plays, key, mesh)
    mix = current_mix(curriculum, after)
    for number, buffer in enumerate(after.buffers):
        metrics |= _numbered(number, measure.buffer_metrics(buffer, mix, replay.config.priority))
    if replay.correction is not None:
        buffer = after.buffers[0]
        model, scores, corrected = replay.correction.learn(
            after.correction, plays[0], scores=buffer.column(replay.leading), ids=buffer.ids, mesh=mesh
        )
        changed = (buffer.with_column(replay.leading, scores), *after.buffers[1:])
        after = dataclasses.replace(after, buffers=changed, correction=model)
        metrics |= corrected
    return after, metrics | source_metrics


def current_mix(curriculum: Curriculum, state: TeacherState) -> Float[Array, " s"]:
    """The present weights of the columns of the buffer when levels are sampled (alpha of CENIE Eq. 5).

    Novelty has alpha. Each score has its share of the rest.
    """
    assert curriculum.replay is not None
    shares = jnp.asarray(curriculum.replay.shares, jnp.float32)
    if state.weight is None:
        return shares
    alpha = weight.alpha(curriculum.alpha, state.weight)
    return jnp.concatenate([(1.0 - alpha) * shares, alpha[None]])


def select_parents(slots: Int[Array, " n"], score: Float[Array, " n"], editing: Editing) -> Int[Array, " n"]:
    """The slots whose levels are edited, one for each child."""
    if editing.parents == "batch":
        return slots
    count = slots.shape[0]
    # A level sampled several times is one candidate, unless there are too few different ones.
    repeated = jnp.tril(slots[:, None] == slots, -1).any(axis=1)
    value = score if editing.parents == "easy" else -score
    order = jnp.lexsort((value, repeated))
    chosen = slots[order[: min(PARENTS, count)]]
    return chosen[jnp.arange(count) % chosen.shape[0]]


def _assignment(
    curriculum: Curriculum,
    state: TeacherState,
    kind: Int[Array, ""],
    batches: list[Play],
    proposal: Proposal,
) -> Assignment:
    """The levels to play, and whether students learn from them: from all that is replayed, and from no
    edits."""
    learned = (kind == REPLAY) | ((kind == NEW) & curriculum.learns_on_new(state.source))
    asked = tuple(dataclasses.replace(batch, kind=kind, learned=learned) for batch in batches)
    return Assignment(kind, learned, asked, proposal)


def _propose(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Play, Proposal]:
    levels, proposal = curriculum.source.propose(state.source, key, num_levels)
    zeros = jnp.zeros(num_levels, jnp.int32)
    return Play(levels, slot=zeros - 1, parents=zeros - 1, generations=zeros), proposal


def _sample(
    replay: Replay, mix: Float[Array, " s"], buffer: BufferState, key: PRNGKeyArray, num_levels: int
) -> tuple[Play, BufferState]:
    slots, buffer = buffers.sample(buffer, key, num_levels, mix, replay.config.priority)
    play = Play(
        buffers.levels_at(buffer, slots),
        slot=slots,
        parents=buffer.parents[slots],
        generations=buffer.generations[slots],
    )
    return play, buffer


def _edited(
    editing: Editing, replay: Replay, buffer: BufferState, replayed: Int[Array, " n"], key: PRNGKeyArray
) -> Play:
    """ACCEL's edit: children of the levels that were replayed last. Consumes the key."""
    # The stored score: an unfinished play left it as it was, several plays of a level share one.
    slots = select_parents(replayed, buffer.column(replay.leading)[replayed], editing)
    slots = jnp.repeat(slots, editing.children)[: slots.shape[0]]
    parents: Level = buffers.levels_at(buffer, slots)
    return Play(
        levels=jax.vmap(editing.edit)(jax.random.split(key, slots.shape[0]), parents),
        slot=jnp.full_like(slots, -1),
        parents=buffer.ids[slots],
        generations=buffer.generations[slots] + 1,
    )


def _with_ends(play: Play) -> Play:
    """The play as if every level that completed no episode had ended with the rollout."""
    rollout = with_ends(play.rollout)
    return dataclasses.replace(play, rollout=rollout, outcomes=episode_outcomes(rollout))


def _one_per_level(column: Column, found: Array, play: Play) -> Float[Array, " n"]:
    """The score of each level. Raises `ValueError` if a function of one's own gave anything else."""
    expected = play.best_return.shape
    if jnp.shape(found) != expected:
        raise ValueError(
            f"the score {column.name} must give one number for each of the {expected[0]} levels, "
            f"got an array {list(jnp.shape(found))}"
        )
    return jnp.asarray(found, jnp.float32)


def _of_student(of_buffers: Sequence[_T], number: int) -> _T:
    """The one of a student's level buffer; without `own_levels` there is one for all."""
    return of_buffers[min(number, len(of_buffers) - 1)]


def _row(curriculum: Curriculum, play: Play, buffer: BufferState | None = None) -> Columns:
    """A row of the log for each level: its lineage, its id (-1 if stored nowhere), and its scores when it
    was played, NaN where there is none."""
    lineage = {"parent": play.parents, "generation": play.generations}
    if buffer is None:
        return {"id": jnp.full_like(play.parents, -1)} | lineage
    ids = jnp.where(play.stored_in >= 0, buffer.ids[play.stored_in], -1)
    completed = play.outcomes.completed
    scores = {
        name: jnp.where(completed, score, jnp.nan) for name, score in play.scores.items() if name != NOVELTY
    }
    if curriculum.novelty is not None:
        # Novelty is of the first student's experience.
        scores[NOVELTY] = play.scores.get(NOVELTY, jnp.full(completed.shape, jnp.nan))
    return {"id": ids} | lineage | scores


def _stored(
    replay: Replay, buffer: BufferState, play: Play, mix: Float[Array, " s"]
) -> tuple[BufferState, Int[Array, " n"], Metrics]:
    """The buffer after a play; where each level is stored, or -1; and how many entered, stayed to the end of
    the batch, and were known already."""

    def update() -> tuple[BufferState, Array, Metrics]:
        updated = buffers.update(buffer, play, replay.config.repeated)
        none, repeats = jnp.zeros((), jnp.int32), buffers.count_repeats(play.slot)
        return updated, play.slot, {"inserted": none, "stayed": none, "duplicates": repeats}

    def insert() -> tuple[BufferState, Array, Metrics]:
        after, offered, placement = buffers.insert(buffer, play, mix, replay.config)
        return (
            after,
            offered.stored_in,
            {
                "inserted": placement.inserted.sum(),
                "stayed": (placement.inserted & (offered.stored_in >= 0)).sum(),
                "duplicates": (placement.known | play.is_copy).sum(),
            },
        )

    return jax.lax.cond(play.is_replayed, update, insert)


def _novelty_learned(
    curriculum: Curriculum,
    before: TeacherState,
    after: TeacherState,
    play: Play,
    key: PRNGKeyArray,
    mesh: Mesh | None,
) -> tuple[TeacherState, Metrics]:
    """The state after novelty and its weight have learned from a play. Consumes the key."""
    novelty, replay, weights = curriculum.novelty, curriculum.replay, before.weight
    assert novelty is not None
    assert replay is not None
    assert weights is not None
    buffer, replayed = before.buffers[0], play.is_replayed
    change = jnp.abs(play.scores[replay.leading] - buffer.column(replay.leading)[play.slot])
    weights = weight.adapt(
        curriculum.alpha,
        replay.config.priority,
        weights,
        buffer=buffer,
        shares=jnp.asarray(replay.shares, jnp.float32),
        replayed=replayed,
        slots=play.slot,
        change=jnp.where(play.outcomes.completed & replayed, change, 0.0),
    )
    # What the student learns from; and, while there is nothing to replay, what it plays.
    enters = replayed | buffers.is_filling(buffer, replay.config)
    # Not `key` itself: without novelty the same decisions are made with the same bits.
    learned = novelty.learn(before.novelty, play, enters=enters, key=jax.random.fold_in(key, 1), mesh=mesh)
    updated = after.buffers[0]
    outdated = updated.column(NOVELTY)
    rescored = novelty.rescore(learned, updated, mesh=mesh)
    if rescored is not None:
        updated = updated.with_column(NOVELTY, jnp.where(updated.mask, rescored, 0.0))
    after = dataclasses.replace(after, buffers=(updated,), novelty=learned, weight=weights)
    return after, {
        "alpha": weight.alpha(curriculum.alpha, weights),
        **_novelty_correlations(updated, outdated),
        **novelty.metrics(learned, updated),
    }


def _novelty_correlations(buffer: BufferState, outdated: Float[Array, " c"]) -> Metrics:
    """Rank correlations of the stored levels' novelty with each of their scores, with the time since they
    were played, and with their novelty before the last batch was learned from."""
    others = {name: buffer.column(name) for name in buffer.columns if name != NOVELTY} | {
        "age": buffer.staleness.astype(jnp.float32),
        "outdated": outdated,
    }
    found = measure.rank_correlations(buffer, buffer.column(NOVELTY), jnp.stack([*others.values()], axis=1))
    return {"novelty_": Several(tuple(f"{name}_correlation" for name in others), found)}


def _source_learned(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    plays: tuple[Play, ...],
    key: PRNGKeyArray,
    mesh: Mesh | None,
) -> tuple[TeacherState, Metrics]:
    """The state after the source has learned, which it does from new levels only. Consumes the key."""
    # The source works on every device in full, rather than wait for others at every step.
    outcomes = replicate(mesh, tuple(play.outcomes for play in plays))

    def learn() -> tuple[Any, Metrics]:
        # Not `key` itself, which decides about edits.
        source_key = jax.random.fold_in(key, 2)
        return curriculum.source.learn(state.source, assignment.proposal, outcomes, source_key)

    if curriculum.replay is None:
        source, metrics = learn()
    else:
        shapes = jax.eval_shape(learn)[1]
        source, metrics = jax.lax.cond(
            assignment.kind == NEW, learn, lambda: (state.source, measure.not_measured(shapes))
        )
    return dataclasses.replace(state, source=source), {"kind": assignment.kind} | {
        f"source/{name}": value for name, value in metrics.items()
    }


def _numbered(number: int, metrics: Metrics) -> Metrics:
    """The first buffer's numbers have plain names."""
    return metrics if number == 0 else {f"buffer{number}/{name}": value for name, value in metrics.items()}
