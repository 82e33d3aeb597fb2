"""Malformed command lines and configs: a message that names the field, an exit code, and JAX is not loaded.

All cases run in one process that was started for them, in which an attempt to load JAX is an error.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cenie import settings
from cenie.command.cli import BAD_INPUT, CANNOT_WRITE, REFUSED, run
from cenie.experiment import memory
from tests.backends import STARTED
from tests.tiny import tiny

HUGE = "1000000000000"
DEEP = "[" * 100_000


@dataclass(frozen=True)
class Case:
    """A command line (in one text, or as a list where a part has spaces), and what is said about it."""

    arguments: str | list[str]
    says: str
    code: int = BAD_INPUT

    @property
    def words(self) -> list[str]:
        return self.arguments.split() if isinstance(self.arguments, str) else self.arguments


def option(name: str, value: str, says: str, method: str = "plr-cenie") -> Case:
    """A wrong value of one setting: its path is always named."""
    return Case(["train", "maze", method, f"--{name}", value], f"{name}: {says}")


PPO, NETWORK, REPLAY, COVERAGE, ALPHA = (
    "student.ppo",
    "student.network",
    "teacher.replay",
    "teacher.novelty.coverage",
    "teacher.alpha",
)

CASES = {
    # Words
    "unknown command": Case("fly", "fly: unknown command; known: train"),
    "no domain": Case("train", "train: expected DOMAIN METHOD"),
    "no method": Case("train maze", "train: expected DOMAIN METHOD"),
    "three words": Case("train maze dr now", "train: expected DOMAIN METHOD"),
    "unknown domain": Case("train moon dr", "domain: must be one of maze, walker, racing, got 'moon'"),
    "unknown method": Case("train maze magic", "method: must be one of dr"),
    "a domain of control characters": Case(["train", "\x1b[2J", "dr"], r"got '\x1b[2J'"),
    "unknown preset": Case("train maze dr --preset fast", "preset: must be one of quick, hard, paper, dcd"),
    "a preset without a name": Case("train maze dr --preset", "preset: needs a name"),
    "the domain as an option": Case("train maze dr --domain maze", "domain: is not an option"),
    "another domain as an option": Case("train maze dr --domain moon", "domain: is not an option"),
    "the method as an option": Case("train maze dr --method plr", "method: is not an option"),
    "nothing but options": Case("train --domain maze --method dr", "expected DOMAIN METHOD"),
    "one dash": Case("train maze dr -seed 3", "-seed: unknown option"),
    "only dashes": Case("train maze dr --", "--: is not the name of an option"),
    "no name": Case("train maze dr --=3", "--=3: is not the name of an option"),
    "given twice": Case("train maze dr --updates 5 --updates=6", "--updates=6: given twice"),
    "a switch and its opposite": Case(
        "train maze dr --env.redraw_direction --env.no_redraw_direction", "contradicts --env.redraw_direction"
    ),
    "methods of something": Case("methods maze", "methods: takes no arguments, got 'maze'"),
    "domains of something": Case("domains --all", "domains: takes at most 1 argument, got '--all'"),
    # Names of settings
    "unknown group": option("studnet.ppo.clip", "1", "'studnet' is not a group"),
    "unknown setting": Case("train maze dr --student.ppo.lr 1", "student.ppo.lr: unknown setting; known: "),
    "unknown setting of a group": option("student.ppo.clib", "1", "unknown setting; did you mean 'clip'?"),
    "setting of another method": option("teacher.replay.capacity", "9", "'teacher.replay' is not", "dr"),
    "a setting as a group": option("seed.x", "1", "'seed' is not a group of settings"),
    "a group as a setting": option("student", "{}", "is a group of settings; give them one by one, as in"),
    "null for a group": option("teacher.replay", "null", "is a group of settings"),
    "empty names": option("student..clip", "1", "'student.' is not a group of settings"),
    "five thousand names": Case(f"train maze dr --student.{'.'.join('a' * 5000)} 1", "error: student.a.a.a"),
    "a name of a hundred thousand letters": Case(f"train maze dr --{'x' * 100_000} 3", "error: xxx"),
    # Types
    "text for a whole number": option("updates", "many", "expected a whole number, got 'many'"),
    "nothing for a whole number": Case(
        "train maze dr --updates", "updates: expected a whole number, got True"
    ),
    "fraction for a whole number": option("seed", "1.5", "expected a whole number, got 1.5"),
    "exponent for a whole number": option("seed", "1e3", "expected a whole number, got 1000.0"),
    "list for a whole number": option("student.num_levels", "1,2", "expected a whole number, got '1,2'"),
    "truth for a number": option(f"{PPO}.clip", "true", "expected a number, got True"),
    "number for a truth": option(f"{PPO}.value_clip", "1", "expected true or false, got 1"),
    "one number for two": option(f"{COVERAGE}.components", "6", "expected 2 values, got 1"),
    "three numbers for two": option(f"{COVERAGE}.components", "6,7,8", "expected 2 values, got 3"),
    "text in a list": Case(
        f"train maze dr --{NETWORK}.kind mlp --{NETWORK}.hidden_sizes 64,x",
        "sizes[1]: expected a whole number",
    ),
    "list in a list": Case(
        f"train maze dr --{NETWORK}.kind mlp --{NETWORK}.hidden_sizes [1,[2]]",
        "sizes[1]: expected a whole number",
    ),
    "not among the choices": option(f"{REPLAY}.priority.transform", "best", "must be one of rank, power"),
    "a number outside the choices": option("env.num_actions", "4", "must be one of 3, 7, got 4"),
    "unknown score": option("teacher.score", "luck", "must be one of pvl"),
    "unknown generator": option(
        "teacher.generator", "none", "must be one of random, simple, uniform60, blocks25, empty"
    ),
    "unknown suite": option("run.suite", "cenie9", "must be one of cenie8"),
    "unknown sink": Case("train maze dr --run.sinks tensorboard,pigeon", "run.sinks[1]: must be one of"),
    "unknown operation": Case(
        "train maze dr --env.edit_operations wall,lava", "env.edit_operations[1]: must be"
    ),
    "an operation twice": option("env.edit_operations", "wall,wall", "must list at least one operation"),
    "brackets for a whole number": option("updates", DEEP, "expected a whole number, got '[[["),
    "brackets for a list": Case(
        ["train", "maze", "dr", "--run.sinks", DEEP], "run.sinks: expected a list, got"
    ),
    "brackets for a text": option("run.suite", DEEP, "must be one of"),
    "nested objects for a number": option(f"{PPO}.clip", '{"a":' * 100_000, "expected a number"),
    "five thousand digits": option("updates", "9" * 5000, "expected a whole number"),
    # Bounds
    "not a number": option(f"{PPO}.gamma", "NaN", "must be a finite number, got nan"),
    "infinite": option(f"{PPO}.learning_rate", "Infinity", "must be a finite number, got inf"),
    "overflow": option(f"{PPO}.learning_rate", "1e400", "must be a finite number, got inf"),
    "overflow in single precision": option(f"{PPO}.learning_rate", "1e300", "must be 0, or between"),
    "underflow in single precision": option(f"{REPLAY}.priority.temperature", "1e-300", "must be 0, or"),
    "negative seed": option("seed", "-1", "must be at least 0, got -1"),
    "seed beyond 32 bits": option("seed", "4294967296", "must be at most 2147483647"),
    "negative learning rate": option(f"{PPO}.learning_rate", "-0.1", "must be greater than 0.0"),
    "zero clip": option(f"{PPO}.clip", "0", "must be greater than 0.0, got 0.0"),
    "gamma above 1": option(f"{PPO}.gamma", "1.01", "must be at most 1.0, got 1.01"),
    "one step": option("student.num_steps", "1", "must be at least 2, got 1"),
    "a maze of two tiles": option("env.size", "2", "must be at least 3, got 2"),
    "a maze of 10^12": option("env.size", HUGE, f"must be at most 128, got {HUGE}"),
    "alpha below 0": option(f"{ALPHA}.value", "-0.1", "must be at least 0.0"),
    "alpha above 1": option(f"{ALPHA}.value", "1.1", "must be at most 1.0, got 1.1"),
    "window 0": option(f"{COVERAGE}.window", "0", "must be at least 1, got 0"),
    "no components": option(f"{COVERAGE}.components", "0,3", "must be at least 1, got 0"),
    "fewest above most components": option(f"{COVERAGE}.components", "9,3", "the fewest must not exceed"),
    "silhouette of one component": option(f"{COVERAGE}.components", "1,1", "a silhouette needs at least 2"),
    "replay rate above 1": option(f"{REPLAY}.replay_prob", "1.5", "must be at most 1.0"),
    "negative temperature": option(f"{REPLAY}.priority.temperature", "-1", "must be greater than 0.0"),
    "no episodes": option("run.episodes", "0", "must be at least 1, got 0"),
    # What does not go together
    "minibatches that do not divide": option(f"{PPO}.minibatches", "7", "must divide num_levels (64)"),
    "levels that no minibatch divides": Case(
        "train maze dr --student.num_levels 6", "student.ppo.minibatches: must divide num_levels (6)"
    ),
    "devices that do not divide": option("run.devices", "3", "must divide the levels of a minibatch (16)"),
    "children that do not divide": option(
        "teacher.edit.children", "3", "must divide student.num_levels", "accel-cenie"
    ),
    "a buffer smaller than a batch": option(
        f"{REPLAY}.capacity", "63", "must be at least student.num_levels (64), got 63"
    ),
    "replay only, from an empty buffer": Case(
        f"train maze plr --{REPLAY}.replay_prob 1 --{REPLAY}.min_fill 0 --{REPLAY}.schedule fixed",
        f"{REPLAY}.min_fill: must be above 0 with a replay_prob of 1",
    ),
    "learning from replayed levels, and no replay": option(f"{REPLAY}.replay_prob", "0", "must be above 0"),
    "unknown network": option(
        f"{NETWORK}.kind", "maze-lstm", "must be one of lstm, gru, mlp, memoryless, pixels, board, got"
    ),
    "another network's setting": option(
        f"{NETWORK}.hidden_sizes", "64", "unknown setting of kind lstm; did you mean"
    ),
    "distinct walls in too small a maze": Case(
        "train maze dr --env.size 7 --env.no_replacement", "env.replacement: 59 distinct walls"
    ),
    # More than a machine can hold
    **{
        f"10^12 for {name}": option(name, HUGE, "must be at most ")
        for name in (
            "student.num_levels",
            "student.num_steps",
            f"{NETWORK}.memory_size",
            f"{NETWORK}.encoder.size",
            f"{NETWORK}.head_size",
            f"{PPO}.epochs",
            f"{PPO}.minibatches",
            f"{PPO}.decay_updates",
            f"{REPLAY}.capacity",
            f"{REPLAY}.priority.top_k",
            f"{COVERAGE}.window",
            f"{COVERAGE}.max_points",
            f"{COVERAGE}.max_iterations",
            "teacher.novelty.refit_every",
            "updates",
            "run.episodes",
            "run.evaluate_every",
            "run.keep_checkpoints",
            "run.cycles_per_chunk",
            "run.devices",
        )
    },
    "10^12 channels": Case(
        f"train maze dr --{NETWORK}.encoder.kind conv --{NETWORK}.encoder.channels {HUGE}",
        f"{NETWORK}.encoder.channels: must be at most ",
    ),
    "bounds of returns in the wrong order": option(
        "teacher.novelty.highest_return", "0", "must be above lowest_return (0)", "plr-epoet"
    ),
    "an unknown distance": option(
        "teacher.novelty.distance.kind",
        "euclid",
        "must be one of sliced, exact, got 'euclid'",
        "diplr",
    ),
    "a setting of another novelty": option(
        "teacher.novelty.coverage.window", "8", "'teacher.novelty.coverage' is not a group", "diplr"
    ),
    "10^12 components": option(f"{COVERAGE}.components", f"6,{HUGE}", "must be at most 1000"),
    "more steps than 32 bits count": Case(
        "train maze dr --student.num_levels 1000000 --student.num_steps 1000000", "student.num_steps: times"
    ),
    "a network larger than the memory": Case(
        f"train maze dr --{NETWORK}.memory_size 65536 --{NETWORK}.encoder.size 65536",
        "student.network: the state of the students takes 825 GB or more",
    ),
    "a minibatch larger than the memory": Case(
        "train maze dr --student.num_levels 100000 --student.num_steps 20000",
        "student.num_levels, student.num_steps, student.ppo.minibatches, student.network: the gradient of a "
        "minibatch",
    ),
    "a rollout larger than the memory": Case(
        f"train maze dr --student.num_levels 100000 --student.num_steps 20000 --{PPO}.minibatches 100000",
        "student.num_levels, student.num_steps: a rollout takes 710 GB or more",
    ),
    "a buffer larger than the memory": Case(
        f"train maze plr --env.size 128 --{REPLAY}.capacity 100000000",
        f"{REPLAY}.capacity, env: the teacher's state (buffers) takes 3.29",
    ),
    "a window larger than the memory": Case(
        f"train maze plr-cenie --{COVERAGE}.window 1000000",
        "teacher.novelty: the teacher's state (novelty) takes 13",
    ),
    # Directories
    "no name for a directory": Case(["train", "maze", "dr", "--out", ""], "out: needs a directory"),
    "no directory": Case("train maze dr --out", "out: needs a directory"),
    "a directory below a file": Case("train maze dr --out file/run", "cannot create file/run", REFUSED),
    "a file for a directory": Case("train maze dr --out file", "cannot create file", REFUSED),
    "a directory that nobody can create": Case(
        "train maze dr --out /proc/run", "cannot create /proc/run", CANNOT_WRITE
    ),
    "a name that is too long": Case(f"train maze dr --out {'x' * 5000}", "ENAMETOOLONG", REFUSED),
    "a name with a zero byte": Case(["train", "maze", "dr", "--out", "a\0b"], r"a\x00b", REFUSED),
    "a directory that holds a run": Case("train maze dr --out good", "--resume good", REFUSED),
    "resume without a directory": Case("train --resume", "resume: needs a directory"),
    "resume with a method": Case("train maze --resume good", "maze: the directory says what to train"),
    "resume with a preset": Case("train --resume good --preset dcd", "preset: not allowed with --resume"),
    "resume with a new name": Case("train --resume good --new-name", "new_name: not allowed with --resume"),
    "resume with another domain": Case("train --resume good --domain moon", "domain: must be one of maze"),
    "resume of another experiment": Case("train --resume good --seed 9", "seed: 0 in the saved run", REFUSED),
    "resume with a wrong value": Case("train --resume good --updates x", "updates: expected a whole number"),
    "resume of nothing": Case("train --resume nowhere", "cannot read nowhere/config.json"),
    "resume of a name that is too long": Case(f"train --resume {'x' * 5000}", "File name too long"),
    "evaluate nothing": Case("evaluate", "evaluate: expected DIR"),
    "evaluate two": Case("evaluate good good", "evaluate: expected DIR"),
    "evaluate a file": Case("evaluate file", "cannot read file/config.json"),
    "evaluate an unknown suite": Case("evaluate good --suite x", "suite: must be one of cenie8"),
    "evaluate 10^12 episodes": Case(f"evaluate good --episodes {HUGE}", "episodes: must be at most 100000"),
    "evaluate by an unknown option": Case("evaluate good --epsiodes 3", "did you mean 'episodes'"),
    "evaluate without a checkpoint": Case("evaluate good", "good has no checkpoint to evaluate", REFUSED),
    # Empty words and names
    "no domain and no method": Case(["train", "", ""], "'': is an empty word; expected a name or a path"),
    "the empty name to evaluate": Case(["evaluate", ""], "is an empty word"),
    "the empty name to report on": Case(["report", ""], "is an empty word"),
    "the empty name to watch": Case(["watch", ""], "is an empty word"),
    "out of nothing": Case(["train", "maze", "dr", "--out", ""], "out: needs a directory"),
    "resume of the empty name": Case(["train", "--resume", ""], "resume: needs a directory"),
    "resume with an empty domain": Case(
        ["train", "--resume", "good", "--domain="], "domain: needs package.module:attribute"
    ),
    "the empty preset": Case(["train", "maze", "dr", "--preset", ""], "preset: needs a name"),
    "the empty suite": Case(["evaluate", "good", "--suite", ""], "suite: needs a value"),
    "the empty domain": Case(["evaluate", "good", "--domain", ""], "domain: needs package.module:attribute"),
    "compare the empty recipe": Case(["compare", "maze", ""], "is an empty word"),
    "compare a blank recipe": Case(["compare", "maze", " "], "' ': is empty"),
    "compare into nothing": Case(["compare", "maze", "dr", "--out", ""], "out: needs a directory"),
    "compare on no suite": Case(["compare", "maze", "dr", "--suites", ""], "suites: needs a value"),
    # Names and paths that are too long
    "a directory to evaluate that is too long": Case(f"evaluate {'x' * 5000}", "File name too long"),
    "a directory to report on that is too long": Case(f"report {'x' * 5000}", "ENAMETOOLONG", REFUSED),
    "a directory to watch that is too long": Case(f"watch {'x' * 5000}", "ENAMETOOLONG", REFUSED),
    "a suite that is too long": Case(f"evaluate good --suite {'x' * 5000}", "suite: must be one of cenie8"),
    "compare into a name that is too long": Case(
        f"compare maze dr --out {'x' * 5000}", "ENAMETOOLONG", REFUSED
    ),
    "compare into a file": Case("compare maze dr --out file", "Not a directory (ENOTDIR)", REFUSED),
    # Recipes and seeds
    "compare with an open quote": Case(
        ["compare", "maze", "dr --teacher.generator 'x"], "cannot be split: No closing quotation"
    ),
    "compare with a seed in a recipe": Case(
        ["compare", "maze", "dr --seed 5"], "'dr --seed 5' has a seed of its own; --seeds says which"
    ),
    "compare with a seed": Case("compare maze dr --seed 5", "seed: is given by --seeds N"),
    "compare the same twice": Case(["compare", "maze", "dr", "dr"], "would both train into dr-seedN"),
    "compare what differs in nothing that counts": Case(
        ["compare", "maze", "dr --run.devices 1", "dr --run.checkpoint_every=3"],
        "'dr --run.devices 1' and 'dr --run.checkpoint_every=3' would both train into dr-seedN",
    ),
    "compare 10^10 seeds": Case("compare maze dr --seeds 10000000000", "seeds: must be at most 1000, got "),
    "compare a number of seeds of 5000 digits": Case(
        f"compare maze dr --seeds {'9' * 5000}", "seeds: must be at most 1000, got "
    ),
    "compare with 2000 seeds": Case(
        f"compare maze dr --seeds {','.join(map(str, range(2000)))}", "seeds: expected at most 1000 values"
    ),
    "a sink that is not installed": Case(
        "train maze dr --run.sinks wandb",
        "run.sinks: 'wandb' is not installed; install it with: pip install 'cenie[wandb]'",
    ),
}

GOOD = settings.to_data(tiny("plr-cenie"))


def changed(path: str, value: Any) -> str:
    data = json.loads(json.dumps(GOOD))
    *groups, name = path.split(".")
    group = data
    for parent in groups:
        group = group[parent]
    group[name] = value
    return json.dumps(data)


CONFIGS = {
    "empty": ("", "is not valid JSON"),
    "torn": (json.dumps(GOOD)[:-9], "is not valid JSON"),
    "not text": (b"\xff\xfe\x00", "is not valid JSON"),
    "brackets": (DEEP, "is not valid JSON"),
    "a list": ("[]", "config: expected a JSON object"),
    "nothing": ("null", "config: expected a JSON object"),
    "too large": (json.dumps(GOOD) + " " * 2**20, "File too large"),
    "a list for the domain": (
        changed("domain", ["maze"]),
        "domain: must be one of maze, walker, racing, got ['maze']",
    ),
    "an object for the method": (changed("method", {"a": 1}), "method: must be one of dr"),
    "a number for the method": (changed("method", 3), "method: must be one of dr"),
    "no domain": (json.dumps({"method": "dr"}), "domain: must be one of maze, walker, racing, got None"),
    "another method's settings": (changed("method", "dr"), "teacher.score: unknown setting"),
    "a list for a group": (changed("env", []), "env: expected a group of settings, got []"),
    "nesting for a group": (
        changed("student", json.loads("[" * 300 + "]" * 300)),
        "student: expected a group",
    ),
    "a list for a suite": (changed("run.suite", ["cenie8"]), "run.suite: expected a text, got ['cenie8']"),
    "an object for a generator": (changed("teacher.generator", {}), "teacher.generator: expected a text"),
    "a list for a choice": (changed("student.network.kind", []), "student.network.kind: must be one of"),
    "not a number": (changed("updates", float("nan")), "NaN is not a number in JSON"),
    "terminal commands in a name": (changed("\x1b]0;owned\x07", 1), r"\x1b]0;owned\x07: unknown setting"),
    "terminal commands in a value": (changed("run.suite", "\x1b[2J"), r"got '\x1b[2J'"),
    "a line break in a name": (changed("x\nerror: y", 1), r"x\nerror: y: unknown setting"),
    "a hundred thousand names": (
        json.dumps({**GOOD, **{f"x{n}": 1 for n in range(80_000)}}),
        "config: has 79980 more unknown settings",
    ),
}

LAST = (
    "larger than the memory",
    "a directory below",
    "a file for a",
    "a directory that nobody",
    "a name ",
    "compare ",
)
"""What is found only with the shapes of the state, or after it: a backend may then have been started."""

IN_ONE_PROCESS = f"""
import contextlib, io, json, sys, traceback

sys.modules["wandb"] = None
from cenie.experiment import memory
from cenie.command.cli import run

memory.memory_size = lambda: 64 * 10**9

def late(name):
    return any(part in name for part in {LAST})

results = {{}}
for name, arguments in sorted(json.load(sys.stdin).items(), key=lambda case: late(case[0])):
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = run(arguments)
        except BaseException:
            code = traceback.format_exc()
    if {STARTED} and not late(name):
        code = "a backend was started"
    results[name] = (code, output.getvalue(), errors.getvalue())
json.dump(results, sys.stdout)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, str, str]]:
    """Exit code (or traceback), output and errors of every case."""
    place = tmp_path_factory.mktemp("malformed")
    (place / "file").touch()
    directories = {"good": json.dumps(GOOD), **{name: content for name, (content, _) in CONFIGS.items()}}
    for name, content in directories.items():
        (place / name).mkdir()
        data = content.encode() if isinstance(content, str) else content
        (place / name / "config.json").write_bytes(data)
    lines = {name: case.words for name, case in CASES.items()}
    for name in CONFIGS:
        lines |= {f"resume: {name}": ["train", "--resume", name], f"evaluate: {name}": ["evaluate", name]}
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        cwd=place,
        check=True,
    )
    return json.loads(done.stdout)


def check(result: tuple[Any, str, str], code: int, says: str) -> None:
    found, output, errors = result
    assert found == code, found
    assert says in errors
    assert output == ""
    assert all(character.isprintable() or character == "\n" for character in errors)
    assert max(map(len, errors.splitlines())) < 1200


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_command_line_is_refused_before_a_backend_is_started(name: str, results: dict) -> None:
    check(results[name], CASES[name].code, CASES[name].says)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_malformed_config_is_refused_before_a_backend_is_started(
    name: str, command: str, results: dict
) -> None:
    check(results[f"{command}: {name}"], BAD_INPUT, CONFIGS[name][1])


def test_refusals_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "memory_size", lambda: 64 * 10**9)
    for case in ("a buffer larger than the memory", "a buffer smaller than a batch"):
        assert run(CASES[case].words) == BAD_INPUT
    assert list(tmp_path.iterdir()) == []
