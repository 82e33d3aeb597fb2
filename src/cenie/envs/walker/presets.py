"""Presets of the walker: settings by their paths, with the source of every value. Imports no JAX.

`paper` is the setting of the CENIE paper (its hyper-parameter table, with the resolutions of its open
points recorded in `docs/decisions.md`). `dcd` is the setting of the code that PLR-perp and ACCEL were
published with, for comparisons with its figures. `quick` is for a first look on two CPU cores;
its figures are not comparable with published ones.

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

# Two networks of 64-64 tanh units and a Gaussian with its own deviations: the defaults of `mlp`.
_STUDENT = {
    "student.network.kind": "mlp",
    "student.ppo.learning_rate": 3e-4,  # table
    "student.ppo.gamma": 0.99,  # table
    "student.ppo.gae_lambda": 0.9,  # table
    "student.ppo.value_clip": False,  # table; the original code then has a Huber loss
    "student.ppo.entropy_coef": 1e-3,  # table
    "student.ppo.normalise_returns": True,  # table
    # A fall costs 100, and 300 is the end of the track: beyond them past students are equal.
    "teacher.novelty.lowest_return": -100.0,
    "teacher.novelty.highest_return": 300.0,
}

# The designer has the network of the student. The paper's table has one PPO for all agents; where the
# original code has another one for its designer, it is that.
_DESIGNER = {
    "teacher.designer.network": {"kind": "mlp"},
    "teacher.designer.ppo.learning_rate": 3e-4,  # table
    "teacher.designer.ppo.gamma": 0.99,  # table
    "teacher.designer.ppo.gae_lambda": 0.9,  # table
    "teacher.designer.ppo.value_clip": False,  # table
    "teacher.designer.ppo.entropy_coef": 0.01,  # original code
    "teacher.designer.ppo.epochs": 8,  # original code
    "teacher.designer.ppo.minibatches": 4,  # original code
    # Original code: the regrets of PAIRED are divided by their deviation, the returns of Minimax are not.
    "teacher.designer.ppo.normalise_returns": Where("teacher.utility", True, equals="regret"),
}
_ALP_GMM = {"teacher.returns": (-200.0, 350.0)}  # original code
_POET = {"teacher.reproduce_at": 200.0, "teacher.criterion": (25.0, 340.0)}  # original code

# BipedalWalker column of the table; the original code says the same.
_LONG_RUN = {
    **_STUDENT,
    **_DESIGNER,
    **_ALP_GMM,
    **_POET,
    "teacher.score": LEARNABLE_RETURNS,
    "student.num_levels": 16,
    "student.num_steps": 2048,
    "student.ppo.epochs": 5,
    "student.ppo.minibatches": 32,
    # SFL: as many levels for each one that is trained on as published, where batches have 256.
    "teacher.scouted": 1600,
    "teacher.kept": 64,
    "teacher.replay.capacity": 1000,
    "teacher.replay.replay_prob": Where("teacher.edit", 0.9),
    "teacher.replay.priority.temperature": 0.1,
    "teacher.replay.priority.staleness_coef": 0.5,
    "teacher.novelty.coverage.reg": 1e-6,
    "run.suite": "walker6",
    "run.evaluate_every": 100,  # paper
    "run.episodes": 10,  # original code: 10 episodes in training
    "run.final_episodes": 100,  # original code: 100 episodes per level
    "run.checkpoint_every": 50,
}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        **_STUDENT,
        **_DESIGNER,
        **_ALP_GMM,
        "teacher.score": LEARNABLE_RETURNS,
        "updates": 100,
        "student.num_levels": 64,
        "student.num_steps": 512,
        "student.ppo.epochs": 5,
        "student.ppo.minibatches": 32,
        "student.ppo.gae_lambda": 0.95,
        "student.ppo.bootstrap_at_timeout": True,
        **QUICK_SCOUTING,
        **QUICK_POPULATION,
        # In returns of 512 steps; to get to the end of its terrain a walker needs three times as many.
        "teacher.reproduce_at": 50.0,
        "teacher.criterion": (10.0, 340.0),
        "teacher.generator": "easy",  # nobody learns to walk on others within minutes
        "teacher.replay.capacity": 1000,
        "teacher.replay.replay_prob": Where("teacher.edit", 0.9),
        # An episode that does not fall is longer than a rollout.
        "teacher.replay.unfinished": "score",
        "teacher.unfinished": "score",
        # A hundred updates cannot afford to spend most of a batch on one level.
        "teacher.replay.priority.temperature": 1.0,
        "teacher.novelty.coverage.reg": 1e-6,
        "teacher.novelty.max_steps": 512,  # past students play as long as the present one
        "run.suite": "walker6",
        "run.evaluate_every": 25,
        "run.episodes": 2,
        "run.final_episodes": 10,
        "run.checkpoint_every": 25,
    },
    "paper": {
        "updates": 30_000,  # 30k PPO updates
        **PAPER_LISTINGS,
        **_LONG_RUN,
    },
    # The original code's configs for the walker.
    "dcd": {**ORIGINAL_CODE, **_LONG_RUN},
}
