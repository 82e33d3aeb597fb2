"""Do scores rank levels alike?

    python -m benchmarks.score_agreement [--scores mna mna-sum pvl] [--updates 60] [--levels 512] [--seed 100]

Levels of the buffer of a run of `plr-robust` in mazes (`quick`), as its student of that moment plays them:
the rank correlations of the first score with all, over all levels and over those on which a rollout
completes several episodes, and their share.
"""

import argparse
import dataclasses
import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from benchmarks.cycle_profile import state_after
from benchmarks.novelty_window import rank_correlation
from cenie.experiment.build import build
from cenie.experiment.presets import preset
from cenie.replay import buffer as buffers
from cenie.replay.play import Play
from cenie.replay.scores import SCORES
from cenie.teach.cycle import play


def scores_of(names: list[str], updates: int, levels: int, seed: int) -> tuple[dict[str, Any], Any]:
    """The scores of as many levels of the buffer, and how many episodes were completed on each."""
    _, setup = build(preset("maze", "plr-robust", "quick", {"updates": 800, "run.devices": 1}))
    state = state_after(setup, updates, seed)
    buffer, count = state.teacher.buffers[0], setup.student.num_levels

    @jax.jit
    def scored(slots: Array, key: Any) -> tuple[dict[str, Array], Array]:
        played = play(setup, 0, state.student, Play(buffers.levels_at(buffer, slots)), key)
        # A level counts as solved if it was ever, also before.
        best = jnp.maximum(played.outcomes.max_return, buffer.max_return[slots])
        played = dataclasses.replace(played, best_return=best)
        return {name: SCORES[name].compute(played) for name in names}, played.outcomes.finished

    slots = jnp.flatnonzero(buffer.mask)[:levels].reshape(-1, count)
    found = [scored(part, jax.random.key(number)) for number, part in enumerate(slots)]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scores", nargs="+", default=["mna", "mna-sum", "pvl"], choices=sorted(SCORES))
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--levels", type=int, default=512)
    parser.add_argument("--seed", type=int, default=100)
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))

    scores, finished = scores_of(options.scores, options.updates, options.levels, options.seed)
    several, first = finished > 1, scores[options.scores[0]]
    completed = finished > 0
    print(json.dumps({"levels": len(finished), "several episodes": round(float(several.mean()), 3)}))
    for name in options.scores:
        figures = {
            where: round(rank_correlation(first[rows], scores[name][rows]), 3)
            for where, rows in {"all": completed, "several episodes": several}.items()
        }
        print(json.dumps({"score": name} | figures))


if __name__ == "__main__":
    main()
