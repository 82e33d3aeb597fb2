"""The two halves of every teacher: `ask` chooses levels, `tell` takes in what became of them.

A cycle plays one batch of levels. After a replay an editing teacher may ask for the edited levels in the
next cycle, so that children are played by the student that has learned from their parents.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cenie.records import Advantages, Level, Rollout, strongly_typed
from cenie.replay import buffer as buffers
from cenie.replay import weight
from cenie.replay.buffer import BufferState, Plays, Recognised, Remembered
from cenie.replay.outcomes import Outcomes, Played, Points, episode_outcomes, with_ends
from cenie.replay.scores import ScoreInputs
from cenie.student.networks import Network
from cenie.teach import measure
from cenie.teach.curriculum import (
    EDIT,
    NEW,
    NOVELTY,
    REPLAY,
    Assignment,
    Batch,
    Column,
    Curriculum,
    Editing,
    Replay,
    ReplayState,
    TeacherState,
)
from cenie.teach.novelty import AccompanyingNovelty, ExaminingNovelty, Experience, Novelty, most_novel
from cenie.teach.recording import Columns
from cenie.teach.source import Proposal
from cenie.xla.devices import replicate, side_by_side

Metrics = dict[str, Array]

MAX_RETURN = "max_return"
PARENTS = 4
"""How many levels of a batch the `easy` and `hard` choices of parents keep (as in the original code)."""


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
    capacity, correction = replay.config.capacity, replay.correction
    remembered = {MAX_RETURN: Remembered("maximum")}
    if novelty is not None:
        remembered |= novelty.remembered(points_shape)
    state = TeacherState(
        source=source,
        replays=tuple(
            ReplayState(
                buffers.init(example, capacity, curriculum.columns, remembered),
                jnp.zeros(num_levels, jnp.int32),
            )
            for _ in range(curriculum.buffers)
        ),
        edit_due=jnp.zeros((), bool),
        novelty=None if novelty is None else _novelty_state(novelty, points_shape, student),
        weight=None if novelty is None else weight.init(curriculum.alpha),
        correction=None if correction is None else correction.init(capacity, num_levels, _other(key)),
    )
    return strongly_typed(state)


def _novelty_state(novelty: Novelty, points_shape: tuple[int, int], student: Network | None) -> Any:
    state = novelty.init(points_shape)
    if not isinstance(novelty, AccompanyingNovelty):
        return state
    if student is None:
        raise ValueError(f"{type(novelty).__name__} keeps copies of the student, and there is none")
    return novelty.with_student(state, student)


def ask(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Assignment, TeacherState]:
    """Choose the `num_levels` levels of the next cycle. Consumes the key."""
    replay, editing, edit_due = curriculum.replay, curriculum.editing, state.edit_due
    if replay is None or edit_due is None:
        batch, proposal = _propose(curriculum, state, key, num_levels)
        students_learn = curriculum.learns_on_new(state.source)
        return Assignment(jnp.asarray(NEW), students_learn, (batch,), proposal), state
    decide_key, levels_key = jax.random.split(key)
    replay_due = buffers.should_replay(state.replays[0].buffer, decide_key, replay.config)
    kind = jnp.where(edit_due, EDIT, jnp.where(replay_due, REPLAY, NEW))
    mix = current_mix(curriculum, state)
    # Not `levels_key` itself for a second buffer, which would sample the same places.
    keys = [levels_key, *(jax.random.fold_in(levels_key, n) for n in range(1, curriculum.buffers))]
    no_proposal = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype),
        jax.eval_shape(lambda key: _propose(curriculum, state, key, num_levels)[1], levels_key),
    )
    before = [replay_state.buffer for replay_state in state.replays]
    # Sampling changes these alone: what goes through a branch as it is would be copied.
    ages = [(buffer.last_played, buffer.clock) for buffer in before]

    def new() -> tuple[list[Batch], Proposal, list[tuple[Array, Array]]]:
        batch, proposal = _propose(curriculum, state, levels_key, num_levels)
        return [batch] * curriculum.buffers, proposal, ages

    def replayed() -> tuple[list[Batch], Proposal, list[tuple[Array, Array]]]:
        sampled = [_sample(replay, mix, buffer, key, num_levels) for buffer, key in zip(before, keys)]
        aged = [(buffer.last_played, buffer.clock) for _, buffer in sampled]
        return [batch for batch, _ in sampled], no_proposal, aged

    branches = [new, replayed]
    if editing is not None:
        branches.append(
            lambda: (
                [_edited(editing, replay, each, key) for each, key in zip(state.replays, keys)],
                no_proposal,
                ages,
            )
        )
    batches, proposal, aged = jax.lax.switch(kind, branches)
    students_learn = (kind == REPLAY) | ((kind == NEW) & curriculum.learns_on_new(state.source))
    replays = tuple(
        dataclasses.replace(
            replay_state,
            buffer=dataclasses.replace(replay_state.buffer, last_played=last_played, clock=clock),
        )
        for replay_state, (last_played, clock) in zip(state.replays, aged, strict=True)
    )
    assignment = Assignment(kind, students_learn, tuple(batches), proposal)
    return assignment, dataclasses.replace(state, replays=replays)


def tell(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    *,
    played: tuple[Played, ...],
    key: PRNGKeyArray,
    student: Network | None = None,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, Metrics, list[Columns]]:
    """Take in what each student played. Consumes the key.

    Returns the scalars worth logging, and for each student what there is to say of each level that it
    played: lineage and scores.

    A curriculum with novelty needs the points of the first student, and may need the `student` itself; the
    devices of the `mesh`, if there is one, share the work on them.

    What follows is cut into steps of which only the second, small one depends on the length of a rollout: a
    loop whose rollouts have many lengths compiles the others once.
    """
    if curriculum.replay is None:
        outcomes = tuple(each.outcomes for each in played)
        if curriculum.unfinished == "score":
            outcomes = tuple(episode_outcomes(with_ends(each.rollout)) for each in played)
        # The source works on every device in full, rather than wait for others at every step.
        outcomes = replicate(mesh, outcomes)
        after, metrics = _source_learned(curriculum, state, assignment, outcomes, key)
        return after, metrics, [_lineage(assignment.batch_of(0), None) for _ in played]
    experience = experience_of(assignment, played[0].levels, played[0].points, student)
    known = recall(curriculum, state, assignment, experience, mesh)
    rollouts = tuple((each.rollout, each.advantages) for each in played)
    verdicts = judge(curriculum, known, rollouts, state.correction, mesh)
    after, metrics, slots = absorb(
        curriculum,
        state,
        assignment,
        known=known,
        verdicts=verdicts,
        key=key,
        experience=experience,
        mesh=mesh,
    )
    if curriculum.replay.correction is not None:
        after, corrected = _correction_learned(
            curriculum, after, assignment, known, played[0], slots[0], mesh
        )
        metrics |= corrected
    rows = []
    for number, verdict in enumerate(verdicts):
        own = min(number, curriculum.buffers - 1)
        ids = jnp.where(slots[own] >= 0, after.replays[own].buffer.ids[slots[own]], -1)
        rows.append(_lineage(assignment.batch_of(number), ids) | _scores(known, verdict, number))
    return after, metrics, rows


class Known(eqx.Module):
    """What the teacher knows of the levels of an assignment before it sees what became of them.

    One entry for each level buffer. `max_return` is the best return so far, -inf for levels that are not
    stored. `novelty_scores` are those of the points under what novelty has learned from earlier ones, and
    `findings` what else it found out about them.
    """

    batches: tuple[Recognised, ...]
    max_return: tuple[Float[Array, " n"], ...]
    novelty_scores: Float[Array, " n"] | None
    findings: Any = None


class Verdict(eqx.Module):
    """What a rollout says of its levels: their scores by name, and what may be believed and remembered.

    `first_scores` are those of the first completed episodes, where these decide about the entry.
    """

    scores: dict[str, Float[Array, " n"]]
    first_scores: dict[str, Float[Array, " n"]] | None
    outcomes: Outcomes
    max_return: Float[Array, " n"]


def recall(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    experience: Experience | None = None,
    mesh: Mesh | None = None,
) -> Known:
    """The first step of `tell`, for a curriculum with replay: look up the levels, and measure novelty."""

    def look_up(replay_state: ReplayState, batch: Batch, kind: Int[Array, ""]) -> tuple[Recognised, Array]:
        found = jax.lax.cond(
            kind == REPLAY,
            lambda: buffers.recognise_slots(batch.slots),
            lambda: buffers.recognise(replay_state.buffer, batch.levels),
        )
        return found, buffers.stored_maximum(replay_state.buffer, MAX_RETURN, found)

    # Every device does this and `_store` in full, which is little, rather than wait for others at every step.
    found = [
        side_by_side(mesh, lambda _, *arguments: look_up(*arguments), replay_state, batch, assignment.kind)
        for replay_state, batch in zip(state.replays, assignment.batches, strict=True)
    ]
    known = Known(tuple(batch for batch, _ in found), tuple(best for _, best in found), None)
    novelty, buffer = curriculum.novelty, state.replays[0].buffer
    if novelty is None:
        return known
    if isinstance(novelty, ExaminingNovelty):
        findings = novelty.examine(state.novelty, _looked_up(experience, known), buffer, mesh=mesh)
        known = dataclasses.replace(known, findings=findings)
    scores = novelty.score(state.novelty, _looked_up(experience, known), buffer)
    return dataclasses.replace(known, novelty_scores=scores)


def judge(
    curriculum: Curriculum,
    known: Known,
    rollouts: tuple[tuple[Rollout, Advantages], ...],
    correction: PyTree[Any] = None,
    mesh: Mesh | None = None,
) -> tuple[Verdict, ...]:
    """The second step: score the rollout of each student. The only one that looks at single steps."""
    replay = curriculum.replay
    assert replay is not None

    def scored(inputs: ScoreInputs) -> dict[str, Float[Array, " n"]]:
        found = {column.name: _computed(column, inputs) for column in replay.scores}
        if replay.correction is not None and correction is not None:
            found[replay.leading] += replay.correction.score(correction, inputs, mesh)
        return found

    verdicts = []
    for student, (rollout, advantages) in enumerate(rollouts):
        inputs = _score_inputs(replay, known, student, rollout, advantages)
        first_scores = None
        if replay.config.repeated == "last":
            first_scores = scored(dataclasses.replace(inputs, episodes="first"))
        verdicts.append(Verdict(scored(inputs), first_scores, inputs.outcomes, inputs.max_return))
    return tuple(verdicts)


def _computed(column: Column, inputs: ScoreInputs) -> Float[Array, " n"]:
    """The score of each level. Raises `ValueError` if a function of one's own gives anything else."""
    found, expected = column.score.compute(inputs), inputs.max_return.shape
    if jnp.shape(found) != expected:
        raise ValueError(
            f"the score {column.name} must give one number for each of the {expected[0]} levels, "
            f"got an array {list(jnp.shape(found))}"
        )
    return jnp.asarray(found, jnp.float32)


def _score_inputs(
    replay: Replay, known: Known, student: int, rollout: Rollout, advantages: Advantages
) -> ScoreInputs:
    own = min(student, len(known.batches) - 1)
    if replay.config.unfinished == "score":
        rollout = with_ends(rollout)
    outcomes = episode_outcomes(rollout)
    # All plays of a level in the batch have one best return.
    best_now = jnp.where(known.batches[own].same_level, outcomes.max_return, -jnp.inf).max(axis=1)
    max_return = jnp.maximum(known.max_return[own], best_now)
    return ScoreInputs(rollout, advantages, outcomes, max_return, replay.config.repeated)


def absorb(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    *,
    known: Known,
    verdicts: tuple[Verdict, ...],
    key: PRNGKeyArray,
    experience: Experience | None = None,
    mesh: Mesh | None = None,
) -> tuple[TeacherState, Metrics, list[Int[Array, " n"]]]:
    """The third step: change the buffers, and let source and novelty learn. Consumes the key.

    Returns what to log, and where each level is stored in each buffer, or -1.
    """
    replay, novelty = curriculum.replay, curriculum.novelty
    assert replay is not None
    replayed = assignment.kind == REPLAY
    mix = current_mix(curriculum, state)
    memory = {} if novelty is None else novelty.memory(state.novelty, _looked_up(experience, known))
    replays, slots, metrics = [], [], {}
    for number, replay_state in enumerate(state.replays):
        batch, verdict = assignment.batches[number], verdicts[number]
        remembered = memory | {MAX_RETURN: verdict.max_return}
        plays = _plays(curriculum, assignment, verdict, known.novelty_scores, remembered)
        buffer, stored_in, stored = side_by_side(
            mesh,
            lambda _, *arguments: _store(replay, *arguments),
            replay_state.buffer,
            assignment.kind,
            batch,
            known.batches[number],
            plays,
            mix,
        )
        replays.append(ReplayState(buffer, jnp.where(replayed, batch.slots, replay_state.replayed)))
        slots.append(stored_in)
        scored = measure.batch_metrics([*verdict.scores.values()], verdict.outcomes.completed)
        metrics |= _numbered(number, stored | scored)
    edit_due = jnp.zeros((), bool)
    if curriculum.editing is not None:
        edit_due = replayed & jax.random.bernoulli(key, curriculum.editing.probability)
    after = dataclasses.replace(state, replays=tuple(replays), edit_due=edit_due)
    if novelty is not None:
        looked_up = _looked_up(experience, known)
        after, learned = _novelty_learned(
            curriculum, state, after, assignment, verdicts[0], slots[0], looked_up, key, mesh
        )
        metrics |= learned
    outcomes = replicate(mesh, tuple(verdict.outcomes for verdict in verdicts))
    after, source_metrics = _source_learned(curriculum, after, assignment, outcomes, key)
    mix = current_mix(curriculum, after)
    for number, replay_state in enumerate(after.replays):
        metrics |= _numbered(number, measure.buffer_metrics(replay_state.buffer, mix, replay.config.priority))
    return after, metrics | source_metrics, slots


def current_mix(curriculum: Curriculum, state: TeacherState) -> Float[Array, " s"]:
    """The present weights of the columns of the buffer when levels are sampled: alpha that of novelty, and of
    the rest each score its share."""
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


def _propose(
    curriculum: Curriculum, state: TeacherState, key: PRNGKeyArray, num_levels: int
) -> tuple[Batch, Proposal]:
    levels, proposal = curriculum.source.propose(state.source, key, num_levels)
    zeros = jnp.zeros(num_levels, jnp.int32)
    return Batch(levels, zeros, zeros - 1, zeros), proposal


def _sample(
    replay: Replay, mix: Float[Array, " s"], buffer: BufferState, key: PRNGKeyArray, num_levels: int
) -> tuple[Batch, BufferState]:
    slots, buffer = buffers.sample(buffer, key, num_levels, mix, replay.config.priority)
    levels = buffers.levels_at(buffer, slots)
    return Batch(levels, slots, buffer.parents[slots], buffer.generations[slots]), buffer


def _edited(editing: Editing, replay: Replay, replay_state: ReplayState, key: PRNGKeyArray) -> Batch:
    # The stored score: an unfinished play left it as it was, several plays of a level share one.
    replayed, buffer = replay_state.replayed, replay_state.buffer
    slots = select_parents(replayed, buffer.column(replay.leading)[replayed], editing)
    slots = jnp.repeat(slots, editing.children)[: slots.shape[0]]
    parents: Level = buffers.levels_at(buffer, slots)
    return Batch(
        levels=jax.vmap(editing.edit)(jax.random.split(key, slots.shape[0]), parents),
        slots=jnp.zeros_like(slots),
        parents=buffer.ids[slots],
        generations=buffer.generations[slots] + 1,
    )


def _lineage(batch: Batch, ids: Int[Array, " n"] | None) -> Columns:
    """Where each level comes from; without an id it is stored nowhere."""
    ids = jnp.full_like(batch.parents, -1) if ids is None else ids
    return {"id": ids, "parent": batch.parents, "generation": batch.generations}


def _scores(known: Known, verdict: Verdict, student: int) -> Columns:
    """The scores of each level as they were when it was played, NaN where there is none."""
    completed = verdict.outcomes.completed
    columns = {name: jnp.where(completed, score, jnp.nan) for name, score in verdict.scores.items()}
    novelty = known.novelty_scores
    if novelty is not None:
        # Novelty is that of the first student's experience.
        columns[NOVELTY] = novelty if student == 0 else jnp.full_like(novelty, jnp.nan)
    return columns


def experience_of(
    assignment: Assignment, levels: Level, points: Points | None, student: Network | None = None
) -> Experience | None:
    """What novelty looks at, if there are points."""
    if points is None:
        return None
    is_new, learned = assignment.kind == NEW, assignment.students_learn
    return Experience(levels, points, is_new, student, learned=learned)


def _looked_up(experience: Experience | None, known: Known) -> Experience:
    """The experience with what the teacher knew of its levels before."""
    if experience is None:
        raise ValueError("a curriculum with novelty needs the points of what the student played")
    return dataclasses.replace(experience, slots=known.batches[0].slot, findings=known.findings)


def _plays(
    curriculum: Curriculum,
    assignment: Assignment,
    verdict: Verdict,
    novelty_scores: Float[Array, " n"] | None,
    memory: dict[str, Float[Array, "n ..."]],
) -> Plays:
    """The rows of a batch as the buffer wants them: one column per score, and which rows have one."""
    valid, editing = verdict.outcomes.completed, curriculum.editing
    if editing is not None and editing.children > 1 and novelty_scores is not None:
        # A child without a score cannot enter, however novel it is.
        best = most_novel(jnp.where(valid, novelty_scores, -jnp.inf), editing.children)
        valid &= best | (assignment.kind != EDIT)

    def columns(scores: dict[str, Float[Array, " n"]]) -> Float[Array, "n s"]:
        values = {**scores, NOVELTY: novelty_scores}
        return jnp.stack([values[name] for name in curriculum.columns], axis=1)

    first_scores = None if verdict.first_scores is None else columns(verdict.first_scores)
    return Plays(columns(verdict.scores), valid, memory, first_scores)


def _store(
    replay: Replay,
    buffer: BufferState,
    kind: Int[Array, ""],
    batch: Batch,
    found: Recognised,
    plays: Plays,
    mix: Float[Array, " s"],
) -> tuple[BufferState, Int[Array, " n"], Metrics]:
    """The buffer after a rollout; where each level is stored, or -1; and how many entered, stayed to the end
    of the batch, and were known already."""

    def update() -> tuple[BufferState, Array, Metrics]:
        updated = buffers.update(buffer, found, plays, replay.config.repeated)
        none, repeats = jnp.zeros((), jnp.int32), buffers.count_repeats(batch.slots)
        return updated, batch.slots, {"inserted": none, "stayed": none, "duplicates": repeats}

    def insert() -> tuple[BufferState, Array, Metrics]:
        inserted, info = buffers.insert(
            buffer,
            batch.levels,
            found,
            plays=plays,
            parents=batch.parents,
            generations=batch.generations,
            mix=mix,
            config=replay.config,
        )
        return (
            inserted,
            info.slots,
            {
                "inserted": info.inserted.sum(),
                "stayed": (info.inserted & (info.slots >= 0)).sum(),
                "duplicates": (info.duplicates | info.copies).sum(),
            },
        )

    return jax.lax.cond(kind == REPLAY, update, insert)


def _novelty_learned(
    curriculum: Curriculum,
    before: TeacherState,
    after: TeacherState,
    assignment: Assignment,
    verdict: Verdict,
    slots: Int[Array, " n"],
    experience: Experience,
    key: PRNGKeyArray,
    mesh: Mesh | None,
) -> tuple[TeacherState, Metrics]:
    """The state after novelty and its weight have learned from a batch. Consumes the key."""
    novelty, replay, weights = curriculum.novelty, curriculum.replay, before.weight
    assert novelty is not None
    assert replay is not None
    assert weights is not None
    buffer, replayed = before.replays[0].buffer, assignment.kind == REPLAY
    sampled = assignment.batches[0].slots
    change = jnp.abs(verdict.scores[replay.leading] - buffer.column(replay.leading)[sampled])
    weights = weight.adapt(
        curriculum.alpha,
        replay.config.priority,
        weights,
        buffer=buffer,
        shares=jnp.asarray(replay.shares, jnp.float32),
        replayed=replayed,
        slots=sampled,
        change=jnp.where(verdict.outcomes.completed & replayed, change, 0.0),
    )
    # What the student learns from; and, while there is nothing to replay, what it plays.
    enters = replayed | buffers.is_filling(buffer, replay.config)
    # Not `key` itself: without novelty the same decisions are made with the same bits.
    learned = novelty.learn(
        before.novelty, experience, slots=slots, enters=enters, key=jax.random.fold_in(key, 1), mesh=mesh
    )
    updated = after.replays[0].buffer
    outdated = updated.column(NOVELTY)
    rescored = novelty.rescore(learned, updated, mesh=mesh)
    if rescored is not None:
        updated = updated.with_column(NOVELTY, jnp.where(updated.mask, rescored, 0.0))
    first = ReplayState(updated, after.replays[0].replayed)
    after = dataclasses.replace(after, replays=(first,), novelty=learned, weight=weights)
    return after, {
        "alpha": weight.alpha(curriculum.alpha, weights),
        **_novelty_correlations(updated, outdated),
        **novelty.metrics(learned, updated),
    }


def _correction_learned(
    curriculum: Curriculum,
    after: TeacherState,
    assignment: Assignment,
    known: Known,
    played: Played,
    slots: Int[Array, " n"],
    mesh: Mesh | None,
) -> tuple[TeacherState, Metrics]:
    """The state after the correction of scores has learned from a batch, and has changed stored scores."""
    replay = curriculum.replay
    assert replay is not None
    assert replay.correction is not None
    assert after.correction is not None
    first = after.replays[0]
    correction, scores, metrics = replay.correction.learn(
        after.correction,
        _score_inputs(replay, known, 0, played.rollout, played.advantages),
        slots=slots,
        scores=first.buffer.column(replay.leading),
        ids=first.buffer.ids,
        replayed=assignment.kind == REPLAY,
        mesh=mesh,
    )
    buffer = first.buffer.with_column(replay.leading, scores)
    replays = (dataclasses.replace(first, buffer=buffer), *after.replays[1:])
    return dataclasses.replace(after, replays=replays, correction=correction), metrics


def _other(key: PRNGKeyArray) -> PRNGKeyArray:
    """A key for what is new beside the source, which is given the key itself."""
    return jax.random.fold_in(key, 1)


def _novelty_correlations(buffer: BufferState, outdated: Float[Array, " c"]) -> Metrics:
    """How novelty ranks the stored levels beside each of their scores, the time since they were played, and
    the novelty that they had before the last batch was learned from."""
    others = {name: buffer.column(name) for name in buffer.columns if name != NOVELTY} | {
        "age": buffer.staleness.astype(jnp.float32),
        "outdated": outdated,
    }
    found = measure.rank_correlations(buffer, buffer.column(NOVELTY), jnp.stack([*others.values()], axis=1))
    return {f"novelty_{measure.several(others)}_correlation": found}


def _source_learned(
    curriculum: Curriculum,
    state: TeacherState,
    assignment: Assignment,
    outcomes: tuple[Outcomes, ...],
    key: PRNGKeyArray,
) -> tuple[TeacherState, Metrics]:
    """The state after the source has learned, which it does from new levels only. Consumes the key."""

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
