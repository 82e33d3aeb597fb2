"""Preset values that several domains share. Imports no JAX."""

from typing import Any

from cenie.settings import Where

ORIGINAL_CODE: dict[str, Any] = {
    "updates": 20_000,  # of its published figures
    "student.ppo.bootstrap_at_rollout_end": False,
    "teacher.replay.insertion": "raw",
    "teacher.replay.repeated": "last",
    "teacher.edit.parents": "easy",
    # Its Minimax takes the best return of the student, where the paper has the value.
    "teacher.utility": Where("teacher.utility", "minus-best-return", equals="minus-return"),
}
"""Differences between the settings of the paper and the code that PLR-perp and ACCEL were published with."""

PAPER_LISTINGS: dict[str, Any] = {
    "teacher.replay.schedule": "fixed",  # new levels or replay: the replay rate decides alone
    "teacher.replay.min_fill": 1.0,  # line 1 of each: N levels populate a buffer of size N
    "teacher.replay.victim": "lowest-priority",  # by Eq. 5, without staleness
}
"""Differences between the listings of the paper (PLR-CENIE, ACCEL-CENIE, DIPLR) and the original code."""

QUICK_SCOUTING: dict[str, Any] = {
    "teacher.scouted": 256,
    "teacher.plays": 4,
    "teacher.kept": 64,
    "teacher.updates": 50,
}
"""SFL within minutes: 16 batches of 64 columns are scouted for every 50 updates."""

QUICK_POPULATION: dict[str, Any] = {"teacher.pairs": 6, "teacher.turn": 5}
"""POET within minutes: a round of a full population has 36 updates."""

LEARNABLE_RETURNS = Where("teacher.score", "generalised-learnability", equals="learnability")
"""Learnability of returns, for episodes that are hardly ever solved, or without success as the score."""

ANY_DOMAIN: dict[str, Any] = {
    "updates": 300,
    "student.num_levels": 32,
    "student.num_steps": 256,
    "student.network.kind": "lstm",
    "student.network.encoder.kind": "flat",  # reads any observation
    "student.network.encoder.size": 64,
    "student.network.memory_size": 64,
    "student.network.forget_bias": 1.0,
    "student.ppo.learning_rate": 5e-4,
    "student.ppo.epochs": 4,
    "student.ppo.minibatches": 4,
    "student.ppo.entropy_coef": 0.005,
    "student.ppo.normalise_returns": True,  # rewards may be of any size
    "teacher.score": LEARNABLE_RETURNS,  # nothing may ever be solved, or success may not be the score
    "teacher.replay.capacity": 1000,
    "teacher.replay.priority.temperature": 1.0,
    "teacher.designer.network.memory_size": 64,
    "teacher.designer.ppo.learning_rate": 5e-4,
    "teacher.designer.ppo.normalise_returns": True,
}
"""The preset of a domain that brings none: small, and nothing in it depends on the domain."""
