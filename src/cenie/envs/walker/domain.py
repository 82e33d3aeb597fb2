"""The walker domain: everything the teacher and the evaluator need of it."""

from functools import partial

from cenie.envs.base import Domain, Renderer
from cenie.envs.domains import DOMAINS
from cenie.envs.walker.config import WalkerConfig
from cenie.envs.walker.design import walker_design
from cenie.envs.walker.dynamics import Walker
from cenie.envs.walker.edit import edit, with_new_seed
from cenie.envs.walker.formats import from_json, to_json
from cenie.envs.walker.generate import RANGES, generate
from cenie.envs.walker.level import statistics
from cenie.envs.walker.parameters import encoding, parameter_space, task_space
from cenie.envs.walker.presets import PRESETS
from cenie.envs.walker.render import episode_frames, render
from cenie.envs.walker.suites import suites


def walker_domain(config: WalkerConfig) -> Domain:
    """The domain of walkers with the given settings."""
    return Domain(
        name="walker",
        summary=DOMAINS["walker"],
        papers={
            "brockman2016openai": "BipedalWalker",
            "towers2024gymnasium": "the simulator that ours is checked against",
            "wang2019poet": "terrains of BipedalWalker by parameters",
            "parkerholder2022evolving": "the eight parameters and the test levels",
        },
        environment=Walker(config),
        generators={name: partial(generate, config, name) for name in RANGES},
        roles={"random": "full", "simple": "easy"},
        edit=partial(edit, num_edits=config.num_edits, stairs=config.stairs),
        redraw=with_new_seed,
        statistics=statistics,
        suites=suites(),
        to_json=to_json,
        from_json=from_json,
        design=partial(walker_design, config),
        parameters=parameter_space(config),
        tasks=task_space(config),
        encoding=partial(encoding, stairs=config.stairs),
        render=Renderer(level=render, episode=episode_frames),
        presets=PRESETS,
        settings=config,
        make=walker_domain,
        # The physics is many small steps. A loop that touches fewer bytes than this in a turn becomes one
        # piece of code instead of a list of calls. Unrolled, loops over few walkers would not become vectors.
        # XLA's newer way to write kernels is slower here. What each is worth is in docs/notebook/speed.md.
        xla_flags=(
            "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=30000000,"
            "xla_cpu_disable_loop_unrolling=true",
            "--xla_cpu_use_fusion_emitters=false",
        ),
    )
