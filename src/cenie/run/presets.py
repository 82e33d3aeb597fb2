"""Presets: named starting points for each domain, with the source of every value. Imports no JAX.

`paper` is the setting of the CENIE paper (its hyper-parameter table, with the resolutions of its open
points recorded in `docs/decisions.md`). `quick` learns visibly in minutes on two CPU cores;
its figures are not comparable with published ones. `dcd` is the setting of the code that PLR-perp and ACCEL
were published with, for comparisons with its figures.
"""

from dataclasses import replace
from typing import Any

from cenie import settings
from cenie.envs.maze.config import MazeConfig
from cenie.run.config import Config, RunConfig, check_names, config_type
from cenie.settings import Problem, SettingsError
from cenie.student.config import NetworkConfig, PPOConfig, StudentConfig
from cenie.teach.methods import METHODS

PRESETS = ("quick", "paper", "dcd")


def preset(domain: str, method: str, name: str, overrides: dict[str, Any] | None = None) -> Config:
    """The config of a preset, with dotted-path overrides; raises `SettingsError` with every problem."""
    check_names(domain, method)
    if name not in PRESETS:
        raise SettingsError([Problem("preset", f"must be one of {', '.join(PRESETS)}, got {name!r}")])
    parts, replay, priority = {"quick": _quick, "paper": _paper, "dcd": _dcd}[name]()
    kind = config_type(domain, method)
    teacher = _with_replay(METHODS[method].settings(), replay, priority, name)
    config = kind(domain=domain, method=method, preset=name, teacher=teacher, **parts)
    config = settings.replace(config, overrides or {})
    return _with_decay(config)


def _with_replay(teacher: Any, replay: dict[str, Any], priority: dict[str, Any], name: str) -> Any:
    """The method's own settings, with what the preset says about level replay."""
    if not hasattr(teacher, "replay"):
        return teacher
    config = replace(teacher.replay, **replay, priority=replace(teacher.replay.priority, **priority))
    teacher = replace(teacher, replay=config)
    if name == "dcd" and hasattr(teacher, "parents"):
        return replace(teacher, parents="easy")
    return teacher


def _with_decay(config: Config) -> Config:
    """Let the learning rate reach its final value at the end of the run, unless told otherwise."""
    if config.student.ppo.decay_updates is not None:
        return config
    ppo = replace(config.student.ppo, decay_updates=max(config.updates, 1))
    return replace(config, student=replace(config.student, ppo=ppo))


Parts = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Groups of the config, and changes to the method's settings of replay and of priority."""


def _paper() -> Parts:
    """Minigrid column of the paper's hyper-parameter table; the defaults of `StudentConfig`."""
    parts = {
        "updates": 30_000,  # paper: 30k PPO updates
        "env": MazeConfig(reward_decay=1.0),  # paper: 1 - t/H, without the 0.9 of the original code
        "student": StudentConfig(),
        "run": _LONG_RUN,
    }
    # Paper: staleness 0.5 (table); its listings decide by the replay rate alone.
    return parts, {"schedule": "fixed"}, {"staleness_coef": 0.5}


def _dcd() -> Parts:
    """The original code's maze configs with 0 to 60 blocks."""
    parts = {
        "updates": 20_000,  # its published checkpoints
        "env": MazeConfig(),
        "student": StudentConfig(ppo=PPOConfig(bootstrap_at_rollout_end=False)),
        "run": _LONG_RUN,
    }
    return parts, {"insertion": "raw", "repeated": "last"}, {}


def _quick() -> Parts:
    parts = {
        "updates": 650,
        "env": MazeConfig(num_actions=3),
        "student": StudentConfig(
            num_levels=64,
            num_steps=256,
            network=NetworkConfig(encoder="bits", encoder_size=64, memory_size=64, forget_bias=1.0),
            ppo=PPOConfig(
                learning_rate=1e-3,
                final_learning_rate_fraction=0.05,
                entropy_coef=0.005,
                gamma=0.99,
                epochs=4,
                minibatches=4,
            ),
        ),
        "run": RunConfig(
            suite="cenie8-sym", evaluate_every=100, episodes=1, final_episodes=5, checkpoint_every=50
        ),
    }
    # A few hundred updates cannot afford to spend most of a batch on one level.
    return parts, {}, {"temperature": 1.0}


_LONG_RUN = RunConfig(
    suite="cenie8",
    evaluate_every=250,  # original code: every 250 updates
    episodes=10,  # original code: 10 episodes in training
    final_episodes=100,  # original code: 100 episodes per level
    checkpoint_every=100,
)
