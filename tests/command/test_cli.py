"""The command line: what it refuses, what it says, and what it does not load."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cenie import settings
from cenie.command import configs, train
from cenie.command.cli import run
from cenie.command.exit_codes import BAD_INPUT, OK, REFUSED
from cenie.command.options import parse
from cenie.envs.domains import DOMAINS, find_domain
from cenie.experiment.config import read_config
from cenie.experiment.presets import preset
from cenie.methods.table import METHODS
from cenie.rundir.documents import load_config
from cenie.rundir.files import write_json
from cenie.settings import SettingsError
from cenie.student.encoders import Bits
from cenie.student.networks.mlp import Mlp
from cenie.student.networks.recurrent import Gru
from tests.backends import STARTED
from tests.tiny import tiny


def test_help_and_tables_load_no_jax():
    code = (
        "import sys; from cenie.command.cli import run; "
        "run(['--help']); run(['methods']); run(['domains']); "
        "print('loaded' if 'jax' in sys.modules else 'not loaded')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "not loaded"
    assert "cenie train DOMAIN METHOD" in result.stdout


def test_a_config_that_is_refused_starts_no_backend_and_flags_of_xla_still_count(tmp_path):
    """A backend reads the flags once; how many devices a run has is known after its config was found good."""
    commands = [
        ["train", domain, method, "--run.suite", "none"]
        for domain, method in (("maze", "paired"), ("walker", "plr-poet"), ("racing", "accel-cenie"))
    ]
    code = (
        "import sys, json; from cenie.command.cli import run; "
        "codes = [run(command) for command in json.loads(sys.argv[1])]; "
        "run(['train', 'maze', 'dr', '--help']); "
        "from cenie.experiment.presets import preset; from cenie.experiment.devices import prepare_devices; "
        f"started = {STARTED}; "
        "prepare_devices(preset('maze', 'dr', overrides={'run.devices': 2})); "
        "import jax; print(codes, started, jax.device_count())"
    )
    command = [sys.executable, "-c", code, json.dumps(commands)]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment
    )
    assert result.stdout.splitlines()[-1] == f"{[BAD_INPUT] * 3} False 2"
    assert "--student.ppo.learning-rate" in result.stdout
    assert "--student.network.encoder.codes" in result.stdout  # a setting of one kind of several


def test_settings_of_another_kind_are_typed_like_those_of_the_default():
    given = {
        "student.network.kind": "gru",
        "student.network.encoder.kind": "bits",
        "student.network.encoder.codes": "2,8",
    }
    config = preset("maze", "dr", "paper", configs.typed("maze", "dr", given))
    assert config.student.network == Gru(encoder=Bits(codes=(2, 8)))


def test_tables_name_every_method_and_domain(capsys):
    assert run(["methods"]) == OK
    printed = capsys.readouterr().out
    assert all(name in printed for name in METHODS)
    assert run(["domains"]) == OK
    printed = capsys.readouterr().out
    assert all(name in printed for name in DOMAINS)
    assert run(["domains", "maze"]) == OK
    assert "cenie8-sym" in capsys.readouterr().out


def test_every_problem_is_reported_at_once_with_its_path(capsys):
    arguments = "train maze plr --updates many --student.ppo.clip -1 --env.num_actions 4 --teacher.score x"
    assert run([*arguments.split(), "--run.suite", "none", "--student.memory", "3"]) == BAD_INPUT
    lines = capsys.readouterr().err.splitlines()
    paths = {line.split(": ")[1] for line in lines}
    assert paths == {
        "updates",
        "student.ppo.clip",
        "env.num_actions",
        "teacher.score",
        "run.suite",
        "student.memory",
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("train", "DOMAIN METHOD"),
        ("train maze", "DOMAIN METHOD"),
        ("train moon dr", "domain: must be one of maze"),
        ("train maze magic", "method: must be one of dr"),
        ("train maze dr --preset fast", "preset: must be one of quick"),
        ("train maze dr --updates", "updates: expected a whole number"),
        ("train maze dr --updates 5 --updates 6", "given twice"),
        ("train maze dr --seed -1", "seed: must be at least 0"),
        ("train maze dr --student.num_levels 6", "student.ppo.minibatches: must divide num_levels (6)"),
        ("train maze dr --student.ppo.gamma nan", "student.ppo.gamma: expected a number"),
        ("train maze dr --run.sinks tensorboard,carrier-pigeon", "run.sinks[1]: must be one of"),
        ("train maze dr --run.devices 3", "run.devices: must divide the levels of a minibatch (16)"),
        (
            "train maze accel --teacher.edit.parents all",
            "teacher.edit.parents: must be one of batch, easy, hard",
        ),
        ("train maze plr --teacher.replay.min_fill 2", "teacher.replay.min_fill: must be at most 1"),
        ("fly", "unknown command"),
        ("evaluate", "expected DIR"),
    ],
)
def test_bad_command_lines_exit_with_2_and_a_reason(arguments, expected, capsys):
    assert run(arguments.split()) == BAD_INPUT
    assert expected in capsys.readouterr().err


def test_a_directory_that_holds_a_run_is_not_overwritten(tmp_path, capsys):
    write_json(tmp_path / "config.json", settings.to_data(tiny("dr")))
    assert run(["train", "maze", "dr", "--out", str(tmp_path)]) == REFUSED
    assert "--resume" in capsys.readouterr().err


def test_repeating_a_command_does_not_train_into_a_second_directory(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = Path("runs/maze-dr-quick-seed0")
    name.mkdir(parents=True)
    write_json(name / "config.json", settings.to_data(tiny("dr")))
    assert run(["train", "maze", "dr"]) == REFUSED
    message = capsys.readouterr().err
    for advice in (
        f"cenie train --resume {name}\n",
        "--out DIR",
        "--new-name",
        "make train SEED=N",
        "remove",
    ):
        assert advice in message
    assert [path.name for path in name.parent.iterdir()] == [name.name]
    write_json(name / "summary.json", {})
    assert run(["train", "maze", "dr"]) == REFUSED
    message = capsys.readouterr().err
    assert "already holds a finished run" in message
    assert f"cenie train --resume {name} --updates MORE" in message
    assert "go on with it" not in message


def test_a_new_name_is_taken_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    taken = []
    monkeypatch.setattr(train, "_start", lambda config, path, resume: taken.append((path, resume)) or OK)
    (tmp_path / "runs/maze-dr-quick-seed0").mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    assert run(["train", "--new-name", "maze", "dr"]) == OK
    assert run(["train", "maze", "dr", "--out", "mine", "--new-name"]) == OK
    assert run(["train", "maze", "dr", "--new-name", "--seed", "1"]) == OK
    names = ("runs/maze-dr-quick-seed0-2", "mine-2", "runs/maze-dr-quick-seed1")
    assert taken == [(Path(name), False) for name in names]


def test_a_directory_without_a_run_can_be_used(tmp_path, monkeypatch):
    """As one that was left by a command which was interrupted before it began."""
    monkeypatch.setattr(train, "_start", lambda config, path, resume: OK)
    (tmp_path / "lock").touch()
    assert run(["train", "maze", "dr", "--out", str(tmp_path)]) == OK


@pytest.mark.parametrize("command", ["train", "evaluate", "methods", "domains"])
def test_help_of_every_command_is_no_error(command, capsys):
    assert run([command, "--help"]) == OK
    printed = capsys.readouterr()
    assert f"cenie {command}" in printed.out
    assert printed.err == ""


def test_the_method_of_a_config_cannot_be_changed_alone():
    with pytest.raises(SettingsError, match="method: cannot be changed alone"):
        settings.replace(preset("maze", "dr", "quick"), {"method": "plr"})
    with pytest.raises(SettingsError, match="domain: cannot be changed alone"):
        settings.replace(preset("maze", "dr", "quick"), {"domain": "moon"})


def test_resume_refuses_a_changed_experiment_and_lists_what_changed(tmp_path, capsys):
    write_json(tmp_path / "config.json", settings.to_data(tiny("dr")))
    arguments = ["train", "--resume", str(tmp_path), "--student.ppo.clip", "0.3", "--seed", "9"]
    assert run(arguments) == REFUSED
    message = capsys.readouterr().err
    assert "student.ppo.clip: 0.2 in the saved run, 0.3 now" in message
    assert "seed" in message


def test_resume_of_a_missing_or_broken_directory_explains(tmp_path, capsys):
    assert run(["train", "--resume", str(tmp_path / "nowhere")]) == BAD_INPUT
    assert "config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{not json")
    assert run(["train", "--resume", str(tmp_path)]) == BAD_INPUT
    assert "config.json" in capsys.readouterr().err


def test_evaluate_without_checkpoint_is_refused(tmp_path, capsys):
    write_json(tmp_path / "config.json", settings.to_data(tiny("dr")))
    assert run(["evaluate", str(tmp_path), "--suite", "plr7"]) == REFUSED
    assert "no checkpoint" in capsys.readouterr().err
    assert run(["evaluate", str(tmp_path), "--suite", "unknown"]) == BAD_INPUT
    assert "suite: must be one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("student.network.channels", "4", [4]),
        ("student.network.channels", "4,", [4]),
        ("student.network.channels", "8, 16", [8, 16]),
        ("student.network.channels", "[8,16]", [8, 16]),
        ("student.network.encoder.codes", "[]", []),
        ("run.sinks", "tensorboard", ["tensorboard"]),
        ("env.edit_operations", "wall", ["wall"]),
        ("teacher.criterion", "-100,340.5", [-100, 340.5]),
        ("teacher.criterion", "none", None),
        ("teacher.reproduce_at", "null", None),
        ("run.env_steps", "none", None),
        ("env.num_actions", "7", 7),
        ("run.suite", "7", "7"),
    ],
)
def test_a_value_is_read_as_what_the_setting_takes(path, text, value):
    """A tuple of one, and a tuple whose default is null, were refused as numbers and texts."""
    assert configs.typed("maze", "poet", {path: text}) == {path: value}


def test_a_tuple_setting_takes_a_single_value():
    given = {"channels": "4", "kernels": "3", "strides": "2"}
    arguments = {f"student.network.{name}": text for name, text in given.items()}
    network = preset("racing", "dr", "quick", configs.typed("racing", "dr", arguments)).student.network
    assert (network.channels, network.kernels, network.strides) == ((4,), (3,), (2,))


def test_a_group_that_may_be_left_out_is_left_out_by_null_and_no_other_is():
    assert configs.typed("maze", "accel", {"teacher.edit": "null"}) == {"teacher.edit": None}
    for path in ("teacher.replay", "student.network"):
        with pytest.raises(SettingsError, match=f"{path}: is a group of settings; .* as in --{path}"):
            configs.typed("maze", "accel", {path: "null"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "maze", "dr", "--student.ppo.clip", ""],
        ["train", "maze", "dr", "--student.ppo.clip="],
        ["train", "maze", "dr", "--env.edit_operations", ""],
        ["train", "maze", "dr", "--run.suite", " "],
        ["train", "maze", "dr", "--out", ""],
        ["train", "maze", "dr", "--preset", ""],
        ["train", "maze", ""],
        ["train", "--resume", ""],
        ["train", "--resume", "run", "--decay", ""],
        ["evaluate", ""],
        ["evaluate", "run", "--suite", ""],
        ["compare", "maze", "dr", "--seeds", ""],
        ["gallery", "maze", "--columns", ""],
        ["report", ""],
    ],
)
def test_an_empty_text_is_refused_wherever_a_value_or_a_name_is_expected(arguments, capsys):
    assert run(arguments) == BAD_INPUT
    reason = capsys.readouterr().err
    assert re.search(r"^error: \S+: (needs .*, got an empty text|is empty)", reason)


def test_switches_and_lists():
    words, options = parse(["maze", "--env.redraw-direction", "--run.sinks", "a,b", "--x=1"])
    assert words == ["maze"]
    assert options == {"env.redraw_direction": "true", "run.sinks": "a,b", "x": "1"}


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_preset_survives_json(domain, method):
    for name in find_domain(domain).presets:
        config = preset(domain, method, name)
        assert read_config(json.loads(json.dumps(settings.to_data(config)))) == config


def test_paper_preset_has_the_papers_values():
    config = preset("maze", "accel", "paper")
    assert config.updates == 30_000
    assert (config.student.num_levels, config.student.num_steps) == (32, 256)
    assert config.student.network.memory_size == 256
    assert config.student.ppo.learning_rate == 1e-4
    assert config.student.ppo.gamma == 0.995
    assert config.teacher.replay.capacity == 4000
    assert config.teacher.replay.replay_prob == 0.8
    assert config.teacher.replay.priority.temperature == 0.3
    assert config.teacher.replay.priority.staleness_coef == 0.5
    assert config.teacher.edit.probability == 1.0
    assert config.env.num_edits == 5


@pytest.mark.parametrize("name", ["paper", "dcd"])
def test_presets_of_the_walker_have_the_papers_values(name):
    config = preset("walker", "accel-cenie", name)
    student, ppo, replay = config.student, config.student.ppo, config.teacher.replay
    assert (student.num_levels, student.num_steps) == (16, 2048)
    assert student.network == Mlp(hidden_sizes=(64, 64), activation="tanh", continuous="gaussian")
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip, ppo.learning_rate) == (0.99, 0.9, 0.2, 3e-4)
    assert (ppo.epochs, ppo.minibatches, ppo.adam_eps, ppo.max_grad_norm) == (5, 32, 1e-5, 0.5)
    assert (ppo.value_clip, ppo.value_coef, ppo.entropy_coef, ppo.normalise_returns) == (
        False,
        0.5,
        1e-3,
        True,
    )
    assert (replay.capacity, replay.priority.temperature, replay.priority.staleness_coef) == (1000, 0.1, 0.5)
    assert (config.env.num_edits, config.env.max_steps) == (3, 2000)
    assert config.teacher.novelty.coverage.reg == 1e-6
    # What counts for methods that edit says nothing of the others.
    rates = {method: preset("walker", method, name).teacher.replay.replay_prob for method in ("plr", "accel")}
    assert rates == {"plr": 0.5, "accel": 0.9}
    assert preset("walker", "dr", name).teacher.generator == "random"


def test_learning_rate_decays_over_the_run_by_default():
    assert preset("maze", "dr", "quick", {"updates": 77}).student.ppo.decay_updates == 77
    named = {"updates": 77, "student.ppo.decay_updates": 5}
    assert preset("maze", "dr", "quick", named).student.ppo.decay_updates == 5


def test_config_with_unknown_domain_is_refused_with_a_path(tmp_path):
    data = {**settings.to_data(tiny("dr")), "domain": "moon"}
    write_json(tmp_path / "config.json", data)
    with pytest.raises(SettingsError, match="domain: must be one of maze"):
        load_config(tmp_path / "config.json")
