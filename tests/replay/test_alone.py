"""The level buffer by itself: scores made by hand, and nothing else of the library."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp

from cenie.replay import buffer
from cenie.replay.config import PriorityConfig, ReplayConfig
from cenie.replay.play import Play

CONFIG = ReplayConfig(capacity=3, min_fill=1.0, schedule="fixed", replay_prob=1.0)


def test_a_buffer_is_filled_sampled_and_updated_with_scores_made_by_hand():
    """Levels are whole numbers. The two scores are mixed half and half; the worst of four levels leaves."""
    state = buffer.init(jnp.int32(0), capacity=3, columns=["regret", "novelty"])
    mix = jnp.array([0.5, 0.5])

    play = buffer.locate(state, Play(jnp.array([7, 8, 9, 8])))
    scores = {"regret": jnp.array([1.0, 2.0, 3.0, 4.0]), "novelty": jnp.array([1.0, 2.0, 3.0, 4.0])}
    state, play, _ = buffer.insert(state, dataclasses.replace(play, scores=scores), mix, CONFIG)
    assert play.stored_in.tolist() == [0, 1, 2, 1]
    assert state.column("regret").tolist() == [1.0, 3.0, 3.0]  # level 8 was played twice
    assert bool(buffer.should_replay(state, jax.random.key(0), CONFIG))

    play = buffer.locate(state, Play(jnp.array([5])))
    better = {"regret": jnp.array([9.0]), "novelty": jnp.array([9.0])}
    config = dataclasses.replace(CONFIG, priority=PriorityConfig(staleness_coef=0.0))
    state, play, _ = buffer.insert(state, dataclasses.replace(play, scores=better), mix, config)
    assert sorted(state.levels.tolist()) == [5, 8, 9]
    assert play.stored_in.tolist() == [0]

    slots, state = buffer.sample(state, jax.random.key(1), 2, mix, CONFIG.priority)
    play = buffer.locate_sampled(state, Play(buffer.levels_at(state, slots), slot=slots))
    renewed = {"regret": jnp.array([0.5, 0.5]), "novelty": jnp.array([0.0, 0.0])}
    state = buffer.update(state, dataclasses.replace(play, scores=renewed))
    assert state.column("regret")[slots].tolist() == [0.5, 0.5]
    assert int(state.clock) == 2


def test_the_machine_of_the_papers_loads_no_method_student_or_domain():
    code = (
        "import sys; from cenie.replay import buffer, scores, weight\n"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('cenie.')})"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(found.stdout.split()) <= {"lazy", "records", "replay", "settings", "system", "xla"}
