"""A run that takes milliseconds: small levels, a small student, a small buffer."""

from typing import Any

from cenie.experiment.config import Config
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS

SETTINGS = {
    "updates": 6,
    "student.num_levels": 4,
    "student.num_steps": 16,
    "student.ppo.epochs": 1,
    "student.ppo.minibatches": 2,
    "run.episodes": 1,
    "run.final_episodes": 1,
    "run.evaluate_every": 4,
    "run.checkpoint_every": 2,
    "run.cycles_per_chunk": 2,
}
DOMAINS = {
    "maze": {
        "env.size": 5,
        "env.max_steps": 8,
        "student.network.memory_size": 8,
        "student.network.encoder.size": 8,
        "student.network.head_size": 8,
        "student.ppo.entropy_coef": 0.005,
        "run.suite": "cenie8",
    },
    "walker": {"env.max_steps": 8, "student.network.hidden_sizes": (8, 8)},
    "racing": {
        "env.time_limit": 12,
        "env.action_repeat": 2,
        "env.frame_size": 16,
        "env.curve_samples": 4,
        "env.circuit_tiles": 48,
        "env.texel": 4.0,
        "student.network.channels": (4,),
        "student.network.kernels": (8,),
        "student.network.strides": (4,),
        "student.network.head_size": 8,
        "run.suite": "bezier",
    },
}
REPLAY = {
    "teacher.replay.capacity": 12,
    "teacher.replay.min_fill": 0.5,
    "teacher.replay.schedule": "proportionate",
}
FAMILIES: dict[str, dict[str, Any]] = {
    "dr": {},
    "minimax": {},
    "paired": {},
    "traced": {**REPLAY, "teacher.correction.memory_size": 8},
    "sfl": {"teacher.scouted": 6, "teacher.plays": 2, "teacher.kept": 3, "teacher.updates": 2},
    # Whatever the returns are, children are made, and admitted.
    "poet": {
        "teacher.pairs": 3,
        "teacher.turn": 1,
        "teacher.children": 3,
        "teacher.archive": 8,
        "teacher.reproduce_at": -1000.0,
        "teacher.criterion": (-1000.0, 1000.0),
    },
    "alp-gmm": {"teacher.fit_every": 8, "teacher.database": 20, "teacher.components": (2, 3)},
}
"""Small teachers of the methods that replay no levels."""
# On one device: what is shared out over two takes longer to compile.
NOVELTY = {
    "teacher.novelty.coverage.components": (2, 4),
    "teacher.novelty.coverage.window": 6,
    "run.devices": 1,
}
# Few and small steps of design.
DESIGNERS = {
    "maze": {
        "teacher.replaces": "blocks25",
        "teacher.designer.network.waves": 2,
        "teacher.designer.network.head_size": 8,
        "teacher.designer.ppo.epochs": 1,
        "teacher.designer.ppo.minibatches": 2,
        "teacher.designer.ppo.learning_rate": 3e-3,
        "teacher.designer.ppo.entropy_coef": 0.005,
        "teacher.designer.paid": "utility",
    },
    "walker": {"teacher.designer.network.hidden_sizes": (8,), "teacher.designer.ppo.epochs": 1},
    "racing": {
        "teacher.designer.network.encoder.channels": 2,
        "teacher.designer.network.head_size": 8,
        "teacher.designer.ppo.epochs": 1,
    },
}

# The novelties by the end of the names of their methods, and what makes them small.
NOVELTIES = {
    "cenie": NOVELTY,
    "diplr": {"teacher.novelty.distance.directions": 4, "teacher.novelty.distance.quantiles": 4},
    "-poet": {"teacher.novelty.archive": 16, "teacher.novelty.neighbours": 3},
    "epoet": {
        "teacher.novelty.students": 3,
        "teacher.novelty.snapshot_every": 2,
        "teacher.novelty.neighbours": 3,
    },
}


def tiny(method: str, domain: str = "maze", **overrides: Any) -> Config:
    """The tiny run of a method; overrides are written with `__` for the dots."""
    family = FAMILIES.get(method, REPLAY)
    if domain == "maze" and method in METHODS and hasattr(METHODS[method].settings, "score"):
        # The score that the method was published with, whichever the maze's preset prefers.
        family = {**family, "teacher.score": METHODS[method].settings.score}
    if method in METHODS and hasattr(METHODS[method].settings, "alpha"):
        family = {**family, "teacher.alpha.value": METHODS[method].settings.alpha.value}
    designer = DESIGNERS[domain] if method in ("minimax", "paired", "repaired") else {}
    novelty = next((small for name, small in NOVELTIES.items() if name in method), {})
    small = {**SETTINGS, **DOMAINS[domain], **family, **designer, **novelty}
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return preset(domain, method, "quick", small | named)
