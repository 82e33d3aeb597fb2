"""The racing domain: everything the teacher and the evaluator need of it."""

from functools import partial

from cenie.envs.base import Domain, Renderer
from cenie.envs.domains import DOMAINS
from cenie.envs.racing.config import RacingConfig
from cenie.envs.racing.design import racing_design
from cenie.envs.racing.dynamics import Racing
from cenie.envs.racing.edit import edit
from cenie.envs.racing.formats import from_json, to_json
from cenie.envs.racing.generate import GENERATORS
from cenie.envs.racing.parameters import encoding, parameter_space, statistics, task_space
from cenie.envs.racing.presets import PRESETS
from cenie.envs.racing.render import episode_frames, render
from cenie.envs.racing.suites import stack, suite_of_file, suites


def racing_domain(config: RacingConfig) -> Domain:
    """The domain of car races with the given settings."""
    return Domain(
        name="racing",
        summary=DOMAINS["racing"],
        papers={
            "brockman2016openai": "CarRacing",
            "towers2024gymnasium": "the simulator that ours is checked against",
            "jiang2021replay": "Bezier tracks and the F1 benchmark",
        },
        environment=Racing(config),
        generators=GENERATORS,
        roles={"random": "grid", "simple": "round"},
        edit=partial(edit, num_edits=config.num_edits, distance=config.edit_distance),
        statistics=partial(statistics, samples=config.curve_samples),
        suites=suites(config),
        suite_of_file=partial(suite_of_file, config),
        stack=stack,
        to_json=to_json,
        from_json=from_json,
        design=partial(racing_design, config),
        parameters=parameter_space(),
        tasks=task_space(),
        encoding=encoding,
        render=Renderer(level=partial(render, config=config), episode=partial(episode_frames, config=config)),
        presets=PRESETS,
        settings=config,
        make=racing_domain,
    )
