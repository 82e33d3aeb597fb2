"""The maze domain: everything the teacher and the evaluator need of it."""

from functools import partial

from cenie.envs.base import Domain, Renderer
from cenie.envs.domains import DOMAINS
from cenie.envs.maze.config import GENERATORS, MazeConfig
from cenie.envs.maze.design import maze_design
from cenie.envs.maze.dynamics import Maze
from cenie.envs.maze.edit import edit
from cenie.envs.maze.formats import from_json, from_text, to_json
from cenie.envs.maze.generate import generate, task_space
from cenie.envs.maze.level import encoding, stack_levels, statistics
from cenie.envs.maze.presets import PRESETS
from cenie.envs.maze.render import episode_frames, render
from cenie.envs.maze.suites import suites


def maze_domain(config: MazeConfig) -> Domain:
    """The domain of mazes with the given settings."""
    return Domain(
        name="maze",
        summary=DOMAINS["maze"],
        papers={
            "chevalierboisvert2023minigrid": "the maze is Minigrid's",
            "dennis2020emergent": "mazes as a benchmark of environment design",
        },
        environment=Maze(config),
        generators={name: partial(generate, config, name) for name in GENERATORS},
        roles={"random": "uniform60", "simple": "empty"},
        edit=partial(edit, num_edits=config.num_edits, operations=config.edit_operations),
        statistics=statistics,
        suites=suites(),
        stack=stack_levels,
        to_json=to_json,
        from_json=from_json,
        from_text=from_text,
        design=partial(maze_design, config),
        tasks=task_space(config),
        encoding=encoding,
        render=Renderer(level=render, episode=episode_frames),
        presets=PRESETS,
        settings=config,
        make=maze_domain,
        # Together they halve the work of the compiler. A cycle that learns is no slower for it: what playing
        # loses without the newer kernels, 5 ms, loops gain that are not unrolled (docs/notebook/start.md).
        xla_flags=(
            "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling=true",
            "--xla_cpu_use_fusion_emitters=false",
        ),
    )
