"""Presets: named starting points for each domain, with the source of every value. Imports no JAX.

`paper` is the setting of the CENIE paper (its hyper-parameter table, with the resolutions of its open
points recorded in `docs/decisions.md`). `quick` learns visibly in about five minutes on two CPU cores;
its figures are not comparable with published ones.
"""

from dataclasses import replace
from typing import Any

from cenie import settings
from cenie.envs.maze.config import MazeConfig
from cenie.run.config import Config, RunConfig, check_names, config_type
from cenie.settings import Problem, SettingsError
from cenie.student.config import NetworkConfig, PPOConfig, StudentConfig

PRESETS = ("quick", "paper")


def preset(domain: str, method: str, name: str, overrides: dict[str, Any] | None = None) -> Config:
    """The config of a preset, with dotted-path overrides; raises `SettingsError` with every problem."""
    check_names(domain, method)
    if name not in PRESETS:
        raise SettingsError([Problem("preset", f"must be one of {', '.join(PRESETS)}, got {name!r}")])
    parts = {"quick": _quick, "paper": _paper}[name]()
    config = config_type(domain, method)(domain=domain, method=method, preset=name, **parts)
    config = settings.replace(config, overrides or {})
    return _with_decay(config)


def _with_decay(config: Config) -> Config:
    """Let the learning rate reach its final value at the end of the run, unless told otherwise."""
    if config.student.ppo.decay_updates is not None:
        return config
    ppo = replace(config.student.ppo, decay_updates=max(config.updates, 1))
    return replace(config, student=replace(config.student, ppo=ppo))


def _paper() -> dict[str, Any]:
    """Minigrid column of the paper's hyper-parameter table; the defaults of `StudentConfig`."""
    return {
        "updates": 30_000,  # paper: 30k PPO updates
        "env": MazeConfig(reward_decay=1.0),  # paper: 1 - t/H, without the 0.9 of the original code
        "student": StudentConfig(),
        "run": RunConfig(
            suite="cenie8",
            evaluate_every=250,  # original code: every 250 updates
            episodes=10,  # original code: 10 episodes in training
            final_episodes=100,  # original code: 100 episodes per level
            checkpoint_every=100,
            cycles_per_chunk=10,
        ),
    }


def _quick() -> dict[str, Any]:
    return {
        "updates": 600,
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
