"""The commands that docs/evidence-plan.md registers are accepted as they stand, and say what it says."""

import shlex

import pytest

from cenie.command import compare
from cenie.command.cli import run
from cenie.experiment.presets import preset
from tests.pages import blocks

COMMANDS = [
    shlex.split(text.replace("\\\n", " "))
    for language, text in blocks("evidence-plan.md")
    if language == "bash"
]


def tasks_of(command, tmp_path, monkeypatch):
    """What `cenie compare` would carry out."""
    found = []
    monkeypatch.setattr(compare, "check_installed", lambda: None)
    monkeypatch.setattr(compare, "_compare", lambda tasks, *_: found.extend(tasks) or 0)
    monkeypatch.chdir(tmp_path)
    assert command[:2] == ["cenie", "compare"]
    assert run(command[1:]) == 0
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_registered_commands_are_accepted(command, tmp_path, monkeypatch):
    tasks = tasks_of(command, tmp_path, monkeypatch)
    assert len({task.directory for task in tasks}) == len(tasks)
    assert {task.env_steps for task in tasks} == {60_000_000}


def test_the_plan_has_every_arm_with_eight_seeds(tmp_path, monkeypatch):
    (command,) = (each for each in COMMANDS if each[-1] == "runs/hard")
    tasks = tasks_of(command, tmp_path, monkeypatch)
    assert len(tasks) == 6 * 8
    assert {seed for task in tasks for seed in [int(task.directory.name.rsplit("seed", 1)[1])]} == set(
        range(2001, 2009)
    )


def test_the_arm_that_variants_change_is_as_the_plan_says():
    usual = preset("maze", "plr-cenie", "hard").teacher
    replay, novelty = usual.replay, usual.novelty
    assert (replay.victim, replay.priority.temperature, usual.alpha.value) == ("least-likely", 1.0, 0.5)
    assert (novelty.measure, novelty.window_takes) == ("mean", "replayed")
    assert (novelty.features, novelty.control) == ("memory", "none")
