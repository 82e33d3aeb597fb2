"""Presets of the racing domain: settings by their paths, with the source of every value. Imports no JAX.

`paper` is the setting of the CENIE paper (its hyper-parameter table, with the resolutions of its open
points recorded in `docs/decisions.md`). `dcd` is the setting of the code that PLR-perp was published with,
for comparisons with its figures. `quick` is for a first look on two CPU cores; its figures are not
comparable with published ones.

What a preset says of a teacher counts for the methods that have such a setting.
"""

from typing import Any

from cenie.envs.shared_presets import (
    LEARNABLE_RETURNS,
    ORIGINAL_CODE,
    PAPER_LISTINGS,
    QUICK_POPULATION,
    QUICK_SCOUTING,
)
from cenie.settings import Where

_PPO = {
    # The student of the original code: the defaults of `pixels`.
    "student.network.kind": "pixels",
    "student.ppo.learning_rate": 3e-4,  # table
    "student.ppo.gamma": 0.99,  # table
    "student.ppo.gae_lambda": 0.9,  # table
    "student.ppo.value_clip": False,  # table; the original code then has a Huber loss
    "student.ppo.entropy_coef": 0.0,  # table
    "student.ppo.normalise_returns": True,  # table
}

# A car that stands still in training loses 10 before it is stopped, and a lap is worth 1000.
_RETURNS = {"teacher.novelty.lowest_return": -100.0, "teacher.novelty.highest_return": 1000.0}
_ALP_GMM = {"teacher.returns": (-100.0, 1000.0)}
# POET was not published for cars. In training a lap is worth at most 1100: 1000 for its tiles, and a bonus at
# the end of an episode. No lap is too easy, as on the walker, where the fastest return less than the bound.
_POET = {"teacher.reproduce_at": 600.0, "teacher.criterion": (100.0, 1100.0)}

# The designer of the original code: two convolutions of 2 x 2 cells there, one of 3 x 3 here.
_DESIGNER = {
    "teacher.designer.network": {
        "kind": "memoryless",
        "encoder": {"kind": "conv", "channels": 16, "rest_size": 8, "mapped": "discrete"},
        "head_size": 256,
    },
    "teacher.designer.ppo.learning_rate": 3e-4,  # original code
    "teacher.designer.ppo.gamma": 0.99,
    "teacher.designer.ppo.gae_lambda": 0.9,
    "teacher.designer.ppo.value_clip": False,
    "teacher.designer.ppo.entropy_coef": 0.0,  # original code
    "teacher.designer.ppo.epochs": 8,  # original code
    "teacher.designer.ppo.minibatches": 4,  # original code
    # Original code: the regrets of PAIRED are divided by their deviation, the returns of Minimax are not.
    "teacher.designer.ppo.normalise_returns": Where("teacher.utility", True, equals="regret"),
}

# CarRacing column of the table; the original code says the same.
_LONG_RUN = {
    **_PPO,
    **_DESIGNER,
    **_RETURNS,
    **_ALP_GMM,
    **_POET,
    "teacher.score": LEARNABLE_RETURNS,
    "student.num_levels": 16,
    "student.num_steps": 125,
    "student.ppo.epochs": 8,
    "student.ppo.minibatches": 4,
    # Plain randomisation draws points anywhere in the original code, and methods that replay on a grid.
    "teacher.generator": Where("method", "continuous", equals="dr"),
    "teacher.scouted": 1600,
    "teacher.kept": 64,
    "teacher.replay.capacity": 8000,
    "teacher.replay.replay_prob": 0.5,
    "teacher.replay.priority.temperature": 1.0,  # original code; the paper gives none
    "teacher.replay.priority.staleness_coef": 0.7,  # original code
    "teacher.novelty.coverage.reg": 1e-1,  # table
    "teacher.novelty.coverage.window": 32,
    "run.suite": "f1-monitor",
    "run.evaluate_every": 100,
    "run.episodes": 10,
    "run.final_episodes": 50,
    "run.checkpoint_every": 50,
}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        **_PPO,
        **_DESIGNER,
        **_RETURNS,
        **_ALP_GMM,
        "teacher.score": LEARNABLE_RETURNS,
        "updates": 1500,
        "env.green": "observed",
        # Half the rows and columns, two frames, and a network of a fortieth of the work.
        "env.frame_size": 48,
        "env.texel": 0.5,
        "student.network.frames": 2,
        "student.network.channels": (8, 16, 32),
        "student.network.kernels": (4, 3, 3),
        "student.network.strides": (4, 2, 1),
        "student.network.head_size": 64,
        "student.num_levels": 16,
        "student.num_steps": 125,
        # Larger and more steps than in the long run, which has twice the updates (docs/notebook/racing.md).
        "student.ppo.learning_rate": 5e-4,
        # At a rate that stays, two students of three stood still after 200 updates (docs/notebook/racing.md).
        "student.ppo.final_learning_rate_fraction": 0.05,
        # Without it, chance was gone before the values were learned, and students differed widely.
        "student.ppo.entropy_coef": 0.01,
        "student.ppo.gae_lambda": 0.95,
        "student.ppo.epochs": 8,
        "student.ppo.minibatches": 10,
        **QUICK_SCOUTING,
        **QUICK_POPULATION,
        # Students of `dr` return 380 after 200 updates (docs/notebook/racing.md), and six pairs share 1,500.
        "teacher.reproduce_at": 300.0,
        "teacher.criterion": (50.0, 1100.0),
        "teacher.replay.capacity": 256,
        "teacher.replay.priority.temperature": 1.0,
        "teacher.novelty.coverage.reg": 1e-1,
        "run.suite": "bezier",
        "run.evaluate_every": 75,
        "run.episodes": 1,
        "run.final_episodes": 3,
        "run.checkpoint_every": 75,
    },
    "paper": {
        "updates": 2750,
        **PAPER_LISTINGS,
        **_LONG_RUN,
    },
    # The original code's configs for CarRacing.
    "dcd": {
        **ORIGINAL_CODE,
        **_LONG_RUN,
        "updates": 2750,
        "env.limits": "dcd",
        # Scores as they are, in the methods that were published so; novelty may be negative.
        "teacher.replay.priority.transform": Where(
            "method", "power", equals=("plr", "plr-robust", "repaired")
        ),
        # The published runs of REPAIRED: grounded positive value loss of dense rewards, and an entropy bonus
        # that those of PAIRED have not.
        "teacher.score": Where(
            "method", "maxmc-start-positive", equals="repaired", otherwise=LEARNABLE_RETURNS
        ),
        "teacher.designer.ppo.entropy_coef": Where("method", 0.01, equals="repaired"),
    },
}
