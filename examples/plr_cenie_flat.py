"""PLR-CENIE in one file: Algorithm 2 of the paper as a loop that can be read from top to bottom.

    python examples/plr_cenie_flat.py [--preset quick] [--updates 100] [--seed 0]

The teacher is plain NumPy. Only the student (network, rollout, PPO), the mazes and the Gaussian mixtures come
from the library. The library's own `plr-cenie` chooses the same levels and learns the same weights, up to
rounding (tests/test_examples.py). It is faster, compiled as a whole, and runs every other method, too.

Numbers of equations are those of the paper.
"""

import argparse
import functools
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

import cenie
from cenie.envs.reset import step_and_restart
from cenie.novelty import coverage
from cenie.student.features import rollout_features
from cenie.student.networks.table import make_network
from cenie.student.ppo import advantages_for, init_student, learn
from cenie.student.rollout import collect


@dataclass
class Stored:
    """A level in the buffer. `age_mark` is the clock when it was last played."""

    level: object
    number: int
    regret: float
    novelty: float
    had_model: bool
    age_mark: int


@dataclass
class LevelBuffer:
    """The level buffer B: its levels, a clock that every sampled level advances, the next number."""

    capacity: int
    levels: list[Stored] = field(default_factory=list)
    clock: int = 0
    next_number: int = 0

    def slot_of(self, level) -> int | None:
        """Where a level with the same bits is stored."""
        wanted = bits_of(level)
        return next((i for i, stored in enumerate(self.levels) if bits_of(stored.level) == wanted), None)


def bits_of(level) -> bytes:
    """A level as bytes: equal levels are equal in all of their bits."""
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(level))


# Regret and novelty of a level ---------------------------------------------------------------------------


def positive_value_loss(advantages: np.ndarray, done: np.ndarray) -> float | None:
    """Eq. 1: the mean of max(advantage, 0) over an episode, averaged over the completed episodes.

    None if no episode was completed: such a level has no score.
    """
    ends = np.flatnonzero(done)
    if not len(ends):
        return None
    episodes = np.split(np.maximum(advantages[: ends[-1] + 1], 0.0), ends[:-1] + 1)
    return float(np.mean([episode.mean() for episode in episodes]))


def novelties(config, window, points) -> np.ndarray:
    """Eq. 2 and 3: the mean negative log-likelihood of each trajectory under the mixture; 0 before a fit."""
    return np.asarray(_novelties(config, window, points, jnp.ones(points.shape[:2], bool)))


_novelties = jax.jit(coverage.novelty, static_argnames="config")
_push = jax.jit(coverage.push)
_fit = jax.jit(coverage.fit, static_argnames="config")


# Replay probabilities ------------------------------------------------------------------------------------


def ranks_of(scores: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """1 for the highest score. Of equal scores the older level ranks higher."""
    ranks = np.empty(len(scores))
    ranks[np.lexsort((numbers, -scores))] = np.arange(1, len(scores) + 1)
    return ranks


def prioritised(ranks: np.ndarray, beta: float) -> np.ndarray:
    """Eq. 4 with h = 1 / rank and the exponent 1 / beta."""
    return ranks ** (-1.0 / beta) / np.sum(np.arange(1, len(ranks) + 1) ** (-1.0 / beta))


def replay_probabilities(levels: list[Stored], alpha: float, beta: float) -> np.ndarray:
    """Eq. 5: P_replay = alpha P_novelty + (1 - alpha) P_regret."""
    by_novelty, by_regret = (prioritised(ranks, beta) for ranks in both_ranks(levels))
    return alpha * by_novelty + (1 - alpha) * by_regret


def both_ranks(levels: list[Stored]) -> tuple[np.ndarray, np.ndarray]:
    """The ranks of all levels by novelty and by regret."""
    numbers = np.array([stored.number for stored in levels])
    novelty = ranks_of(np.array([stored.novelty for stored in levels]), numbers)
    return novelty, ranks_of(np.array([stored.regret for stored in levels]), numbers)


def lowest(levels: list[Stored], alpha: float, beta: float) -> int:
    """The slot of the lowest P_replay; of equal ones, the one with the worst mean rank."""
    by_score = replay_probabilities(levels, alpha, beta)
    by_novelty, by_regret = both_ranks(levels)
    mean_rank = alpha * by_novelty + (1 - alpha) * by_regret
    return int(np.argmax(np.where(np.isclose(by_score, by_score.min()), mean_rank, 0.0)))


def with_staleness(by_score: np.ndarray, buffer: LevelBuffer, rho: float) -> np.ndarray:
    """PLR's staleness around Eq. 5: with the share rho, levels that were not played for long come back."""
    staleness = np.array([buffer.clock - stored.age_mark for stored in buffer.levels], float)
    count = len(staleness)
    by_age = staleness / staleness.sum() if staleness.sum() else np.full(count, 1 / count)
    return (1 - rho) * by_score + rho * by_age


def sample_slots(buffer: LevelBuffer, uniforms: np.ndarray, alpha: float, priority) -> list[int]:
    """Slots to replay, one after another: each sample makes its level fresh and all others older."""
    by_score = replay_probabilities(buffer.levels, alpha, priority.temperature)
    slots = []
    for uniform in uniforms:
        running = np.cumsum(with_staleness(by_score, buffer, priority.staleness_coef))
        slot = int(np.argmax(running >= running[-1] * (1.0 - uniform)))
        buffer.clock += 1
        buffer.levels[slot].age_mark = buffer.clock
        slots.append(slot)
    return slots


def offer(buffer: LevelBuffer, newcomer: Stored, alpha: float, beta: float) -> None:
    """Line 10: the newcomer replaces the level of lowest P_replay, if its own P_replay is higher."""
    if len(buffer.levels) < buffer.capacity:
        buffer.levels.append(newcomer)
    else:
        worst = lowest(buffer.levels, alpha, beta)
        among_all = replay_probabilities([*buffer.levels, newcomer], alpha, beta)
        if among_all[-1] <= among_all[worst]:
            return
        buffer.levels[worst] = newcomer
    buffer.next_number += 1


# The training loop ---------------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("environment", "config"))
def play(environment, config, student, levels, key):
    """A rollout on each level, its advantages, and its state-action points x."""
    rollout = collect(
        environment,
        student.network,
        levels,
        key=key,
        num_steps=config.num_steps,
        advance=step_and_restart,
        bootstrap_at_timeout=config.ppo.bootstrap_at_timeout,
        keep_features=True,
    )
    points = rollout_features(rollout, environment.action_space)
    return rollout, advantages_for(config, student, rollout).advantage, points


_learn = jax.jit(learn, static_argnames="config")


class PlrCenie:
    """The student, the level buffer and the window Gamma, and one cycle of Algorithm 2."""

    def __init__(self, config: cenie.Config):
        domain = config.built_domain
        self.teacher, self.student_config = config.teacher, config.student
        self.environment, self.generate = (
            domain.environment,
            jax.jit(jax.vmap(domain.generator(config.teacher.generator))),
        )
        network_key, self.key = jax.random.split(jax.random.key(config.seed))
        spaces = self.environment.observation_space, self.environment.action_space
        self.student = init_student(
            config.student, make_network(config.student.network, *spaces, network_key)
        )
        self.buffer = LevelBuffer(config.teacher.replay.capacity)
        self.window = None  # made when the shape of a trajectory's points is known
        self.cycles = self.updates = 0

    def cycle(self) -> str:
        """Play one batch of new or replayed levels; learn from it if it is replayed."""
        teacher, count = self.teacher, self.student_config.num_levels
        alpha, priority = teacher.alpha.value, teacher.replay.priority
        ask_key, play_key, learn_key, tell_key = jax.random.split(
            jax.random.fold_in(self.key, self.cycles), 4
        )
        decide_key, levels_key = jax.random.split(ask_key)
        filling = len(self.buffer.levels) < teacher.replay.levels_before_replay
        replays = not filling and float(jax.random.uniform(decide_key)) < teacher.replay.replay_prob

        if replays:
            uniforms = np.asarray(jax.random.uniform(levels_key, (count,)))
            slots = sample_slots(self.buffer, uniforms, alpha, priority)
            chosen = [self.buffer.levels[slot].level for slot in slots]
            levels = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chosen)
        else:
            levels = self.generate(jax.random.split(levels_key, count))

        rollout, advantages, points = play(
            self.environment, self.student_config, self.student, levels, play_key
        )
        if self.window is None:
            self.window = coverage.init(teacher.novelty.coverage, *points.shape[1:])
        novelty = novelties(teacher.novelty.coverage, self.window, points)
        had_model = bool(self.window.fitted)
        done = np.asarray(rollout.terminated | rollout.truncated)
        regret = [positive_value_loss(*rows) for rows in zip(np.asarray(advantages), done)]

        if replays:
            self.student, _ = _learn(self.student_config, self.student, rollout, learn_key)
            self.updates += 1
            self._rescore(slots, regret, novelty, had_model)
        else:
            self._offer(levels, regret, novelty, had_model)
        self._refit(points, replays, filling, jax.random.fold_in(tell_key, 1))
        self.cycles += 1
        return "replay" if replays else "new"

    def _rescore(self, slots, regret, novelty, had_model: bool) -> None:
        """New scores of the replayed levels; a level that was sampled several times gets the mean."""
        for slot in set(slots):
            rows = [i for i, other in enumerate(slots) if other == slot and regret[i] is not None]
            stored = self.buffer.levels[slot]
            stored.had_model = had_model
            if rows:
                stored.regret = float(np.mean([regret[i] for i in rows]))
                stored.novelty = float(np.mean(novelty[rows]))

    def _offer(self, levels, regret, novelty, had_model: bool) -> None:
        """New levels, one after another; a level that is stored already is scored again."""
        count = len(regret)
        for row in range(count):
            if regret[row] is None:
                continue
            level = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), levels)
            mark = self.buffer.clock - (count - 1 - row)
            found = Stored(level, self.buffer.next_number, regret[row], float(novelty[row]), had_model, mark)
            if (slot := self.buffer.slot_of(level)) is None:
                offer(self.buffer, found, self.teacher.alpha.value, self.teacher.replay.priority.temperature)
            else:
                found.number = self.buffer.levels[slot].number
                self.buffer.levels[slot] = found

    def _refit(self, points, replays: bool, filling: bool, key) -> None:
        """Lines 17 to 21: the window takes what the student learned from, and all mixtures are fitted again.

        While the level buffer fills, the window is filled once.
        """
        config = self.teacher.novelty.coverage
        if replays or (filling and not bool(coverage.is_full(self.window))):
            self.window = _push(self.window, points, jnp.ones(points.shape[:2], bool))
            self.window = _fit(config, self.window, key)
        # Levels from before the first fit have no novelty yet: they get the lowest one of the others.
        measured = [stored.novelty for stored in self.buffer.levels if stored.had_model]
        for stored in self.buffer.levels:
            if not stored.had_model:
                stored.novelty = min(measured, default=0.0)


def main(preset: str, updates: int, seed: int) -> float:
    """Train, and return the mean solved rate on the eight held-out mazes of the paper."""
    listing = {"teacher.replay.victim": "lowest-priority", "teacher.replay.schedule": "fixed"}
    config = cenie.preset("maze", "plr-cenie", preset, {"seed": seed, "teacher.score": "pvl", **listing})
    run = PlrCenie(config)
    while run.updates < updates:
        kind = run.cycle()
        print(f"cycle {run.cycles}: {kind}, {run.updates} updates, {len(run.buffer.levels)} levels stored")
    domain = config.built_domain
    suite = domain.suites["cenie8"]()
    return cenie.suite_mean(
        cenie.solved_rates(cenie.evaluate(domain, run.student.network, suite, episodes=5, seed=0))
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="quick")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    print("held-out mazes solved:", main(**vars(parser.parse_args())))
