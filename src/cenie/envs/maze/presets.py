"""Presets of the maze: settings by their paths, with the source of every value. Imports no JAX.

`paper` is the setting of the CENIE paper (its hyper-parameter table, with the resolutions of its open
points recorded in `docs/decisions.md`). `quick` learns visibly in minutes on two CPU cores;
its figures are not comparable with published ones. `hard` is the same student on larger mazes of up to 60 %
of walls, for comparing methods. `dcd` is the setting of the code that PLR-perp and ACCEL
were published with, for comparisons with its figures.

What a preset says of a teacher counts for the methods that have such a setting.
"""

from typing import Any

from cenie.envs.shared_presets import ORIGINAL_CODE, PAPER_LISTINGS, QUICK_POPULATION, QUICK_SCOUTING
from cenie.settings import Where

# The student of the paper and of the original code; its sizes are the defaults of the settings.
_CONV_LSTM = {"student.network.kind": "lstm", "student.network.encoder.kind": "conv"}

# The designer of the original code. The paper's table has one PPO for all agents, and the original code has
# the same numbers for its designer in mazes. What is not here are the defaults of the settings.
_DESIGNER = {
    "teacher.designer.network.encoder": {
        "kind": "conv",
        "channels": 128,  # original code
        "rest_size": 10,  # original code: of the time step; the noise stays as it is
        "mapped": "discrete",
    },
    "teacher.designer.ppo.learning_rate": 1e-4,  # table; original code
    "teacher.designer.ppo.epochs": 5,  # table; original code
    "teacher.designer.ppo.entropy_coef": 0.0,  # original code
}

# Between what a return lies, for ranks of past students.
_RETURNS = {"teacher.novelty.lowest_return": 0.0, "teacher.novelty.highest_return": 1.0}

# POET was not published for mazes. A student that finds a near goal at once returns 0.95 and more.
_POET = {"teacher.reproduce_at": 0.6, "teacher.criterion": (0.1, 0.95)}

_LONG_RUN = {
    **_RETURNS,
    **_POET,
    # SFL: as many levels for each one that is trained on as published, where batches have 256.
    "teacher.scouted": 3200,
    "teacher.kept": 128,
    "run.suite": "cenie8",
    "run.evaluate_every": 250,  # original code: every 250 updates
    "run.episodes": 10,  # original code: 10 episodes in training
    "run.final_episodes": 100,  # original code: 100 episodes per level
    "run.checkpoint_every": 100,
}

_QUICK: dict[str, Any] = {
    "updates": 800,
    "env.num_actions": 3,
    "student.num_levels": 64,
    "student.num_steps": 256,
    "student.network.kind": "lstm",
    "student.network.encoder.kind": "bits",
    "student.network.encoder.size": 64,
    "student.network.encoder.codes": (2, 8),  # object codes of wall and goal
    "student.network.memory_size": 64,
    "student.network.forget_bias": 1.0,
    "student.ppo.learning_rate": 1e-3,
    "student.ppo.final_learning_rate_fraction": 0.05,
    "student.ppo.entropy_coef": 0.01,
    "student.ppo.gamma": 0.99,
    "student.ppo.epochs": 4,
    "student.ppo.minibatches": 4,
    **QUICK_SCOUTING,
    # From empty mazes ACCEL solves next to no held-out maze after 600 updates (docs/notebook/methods.md).
    "teacher.generator": Where("teacher.edit", "random"),
    # Positive value loss, the paper's score, fails on some seeds within so few updates
    # (docs/notebook/preset.md);
    # methods that are named after a score of their own keep it.
    "teacher.score": Where("teacher.score", "maxmc", equals="pvl"),
    # Learning begins after 8 batches and not after 32; new levels and replays take turns from then on.
    "teacher.replay.min_fill": 0.125,
    "teacher.replay.schedule": "fixed",
    # A few hundred updates cannot afford to spend most of a batch on one level.
    "teacher.replay.priority.temperature": 1.0,
    # Half of the paper's: no weight of novelty was better than none within so few updates
    # (docs/notebook/novelty.md). Methods that rank by novelty alone keep theirs.
    "teacher.alpha.value": Where("teacher.alpha.value", 0.25, equals=0.5),
    # Two batches: with less, a third of novelty's ranking is the luck of the window (docs/novelty.md).
    "teacher.novelty.coverage.window": 128,
    # The ranking of 4096 at a third of the cost (docs/novelty.md): there is time to fit every number of
    # components to the end, and the choice is as in the exact mode (docs/notebook/coverage.md).
    "teacher.novelty.coverage.max_points": 1536,
    "teacher.novelty.coverage.screening_steps": None,
    # Tiles are read and chosen as a few waves across the board: a designer that learns each of them for
    # itself needs more updates than fit into minutes, because regrets are noise for the most part
    # (docs/methods/paired.md).
    "teacher.designer.network": {
        "kind": "board",
        "waves": 4,
        "codes": (2, 8, 10),  # object codes of wall, goal and start
    },
    "teacher.replaces": "blocks25",
    # By utility, a few levels on which a student failed by chance would decide alone.
    "teacher.designer.paid": "rank",
    "teacher.designer.ppo.learning_rate": 1e-3,
    "teacher.designer.ppo.gae_lambda": 1.0,
    "teacher.designer.ppo.epochs": 4,
    "teacher.designer.ppo.minibatches": 4,
    "teacher.designer.ppo.entropy_coef": 0.01,
    **_RETURNS,
    **_POET,
    **QUICK_POPULATION,
    "run.suite": "cenie8-sym",
    "run.evaluate_every": 100,
    "run.episodes": 1,
    "run.final_episodes": 5,
    "run.checkpoint_every": 50,
}

# Hard levels are rare here, and the budget is too small to learn them all (docs/hard-mazes.md).
_HARD: dict[str, Any] = {
    **_QUICK,
    "env.size": 21,
    "env.fill": (0.0, 0.6),
    "env.max_steps": 150,
    # The first level of POET must be one that can be learned from.
    "teacher.generator": Where("method", "filled", unless="poet"),
    "teacher.replaces": "filled",
    # The paper's weight of novelty, whose effect this preset is to measure.
    "teacher.alpha.value": Where("teacher.alpha.value", 0.5, equals=0.5),
    # Methods learn from different shares of what they play, and are compared at equal environment steps.
    "updates": 4000,
    "run.env_steps": 60_000_000,
    # The rate falls for none of them, so that no method has a schedule of its own and runs can go on.
    "student.ppo.final_learning_rate_fraction": 1.0,
    "run.suite": "hard1000",
    "run.evaluate_every": 200,
    "run.final_episodes": 10,
}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": _QUICK,
    "hard": _HARD,
    # Minigrid column of the paper's hyper-parameter table; the rest are the defaults of the settings.
    "paper": {
        "updates": 30_000,  # 30k PPO updates
        "env.reward_decay": 1.0,  # 1 - t/H, without the 0.9 of the original code
        **PAPER_LISTINGS,
        "teacher.replay.priority.staleness_coef": 0.5,  # table
        **_CONV_LSTM,
        **_DESIGNER,
        **_LONG_RUN,
    },
    # The original code's maze configs with 0 to 60 blocks.
    "dcd": {
        **ORIGINAL_CODE,
        **_CONV_LSTM,
        **_DESIGNER,
        **_LONG_RUN,
        # The published runs of REPAIRED: grounded signed value loss.
        "teacher.score": Where("method", "maxmc", equals="repaired"),
        "teacher.replay.priority.temperature": Where("method", 0.1, equals="repaired"),
    },
}
