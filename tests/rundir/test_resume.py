"""Going on with a run, or looking at it: only with its own config, and with a word of what changed."""

import errno
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import cenie
from cenie import settings
from cenie.command import cli
from cenie.experiment.rows import EvaluationRow
from cenie.rundir import evaluate, manifest
from cenie.rundir.documents import load_config
from cenie.rundir.files import RunDirectory, RunDirectoryError, read_json, write_json
from cenie.rundir.manifest import Unusable
from cenie.rundir.resume import check_checkpoints, decay_note, read_facts, updates_done, with_decay
from cenie.training import loop as training
from cenie.training.progress import Progress
from tests.backends import STARTED
from tests.tiny import tiny

SHORT = tiny("dr", updates=2, run__cycles_per_chunk=1, run__checkpoint_every=1, run__evaluate_every=100)
LONGER = settings.replace(SHORT, {"updates": 4})


def run(config, path: Path, **named: Any) -> str:
    """Train; returns what was printed."""
    console = Console(file=io.StringIO(), record=True, width=2000)
    with Progress(console, config.updates) as progress:
        assert training.train(config, RunDirectory(path), progress, **named)
    return console.export_text()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two updates."""
    path = tmp_path_factory.mktemp("original") / "run"
    run(SHORT, path, resume=False)
    return path


@pytest.fixture
def short(original: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, to be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    """A test that waits for a pipe fails instead of waiting for ever."""

    def give_up(*_: object) -> None:
        raise TimeoutError("waited for two minutes")

    previous = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def newest(path: Path) -> Path:
    return manifest.newest_first(path / "checkpoints")[0]


def facts_of(path: Path) -> dict[str, Any]:
    return manifest.read(newest(path))["facts"]


def edit_config(path: Path, **changes: Any) -> None:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    config = settings.replace(load_config(path / "config.json"), named)
    write_json(path / "config.json", settings.to_data(config))


def forge_facts(path: Path, change: Callable[[dict[str, Any]], object], step: int | None = None) -> None:
    """Change the facts of every checkpoint (and the step), with right hashes."""
    for checkpoint in manifest.newest_first(path / "checkpoints"):
        data = manifest.read(checkpoint)
        change(data["facts"])
        content = (checkpoint / "arrays.safetensors").read_bytes()
        text = manifest.encode(data["step"] if step is None else step, data["leaves"], content, data["facts"])
        (checkpoint / "manifest.json").write_bytes(text)
        if step is not None:
            checkpoint.rename(checkpoint.with_name(f"step-{step:08d}"))
            return


def without_backend(*arguments: object) -> tuple[int, str]:
    """Exit code and output of a command line that must start no backend of JAX."""
    code = (
        "import sys; from cenie.command.cli import run; code = run(sys.argv[1:]); "
        f"assert not {STARTED}, 'a backend was started'; sys.exit(code)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "a backend was started" not in result.stderr
    return result.returncode, result.stdout + result.stderr


# The config belongs to the checkpoints (point 7)


@pytest.mark.parametrize("command", [("train", "--resume"), ("evaluate",)])
def test_an_edited_config_is_refused_with_the_settings_that_differ(short: Path, command, capsys) -> None:
    """The hash was written and never read: another learning rate or seed went on with code 0."""
    edit_config(short, seed=7, student__ppo__learning_rate=0.5)
    assert cli.run([*command, str(short)]) == cli.REFUSED
    message = capsys.readouterr().err
    assert "step-00000002 was not made with the settings of config.json" in message
    assert "seed: 0 in the saved run, 7 now" in message
    assert "student.ppo.learning_rate: 0.001 in the saved run, 0.5 now" in message


def test_an_edited_config_is_refused_before_a_backend_is_started(short: Path) -> None:
    edit_config(short, seed=7)
    for command in (("train", "--resume"), ("evaluate",)):
        code, printed = without_backend(*command, short)
        assert (code, "seed: 0" in printed) == (cli.REFUSED, True)


def test_training_itself_refuses_an_edited_config_and_leaves_the_directory_alone(short: Path) -> None:
    before = (short / "config.json").read_bytes(), (short / "metrics.jsonl").read_bytes()
    with pytest.raises(RunDirectoryError, match=r"student.ppo.clip: 0.2 in the saved run, 0.3 now"):
        run(settings.replace(LONGER, {"student.ppo.clip": 0.3}), short, resume=True)
    assert before == ((short / "config.json").read_bytes(), (short / "metrics.jsonl").read_bytes())


@pytest.mark.parametrize("kept", [0, 1])
def test_checkpoints_of_another_run_are_refused_though_their_shapes_fit(
    short: Path, tmp_path: Path, kept: int, capsys
) -> None:
    """Also one that would not be used, because it is older than those of this run."""
    other = tmp_path / "other"
    other.mkdir()
    config = settings.replace(SHORT, {"seed": 3, "student.ppo.gamma": 0.5})
    write_json(other / "config.json", settings.to_data(config))
    shutil.copytree(short / "checkpoints", other / "checkpoints")
    if kept:
        data = settings.to_data(config)
        own = {"settings": data}
        foreign = newest(other).with_name("step-00000001")
        shutil.move(foreign, tmp_path / "foreign")
        forge_facts(other, lambda facts: facts.update(own))
        shutil.move(tmp_path / "foreign", foreign)
    for command in (["train", "--resume", str(other), "--updates", "4"], ["evaluate", str(other)]):
        assert cli.run(command) == cli.REFUSED
        message = capsys.readouterr().err
        assert f"step-0000000{2 - kept} was not made" in message
        assert "student.ppo.gamma: 0.99 in the saved run, 0.5 now" in message


def test_what_may_change_on_resume_is_no_difference(short: Path) -> None:
    edit_config(short, updates=9, run__suite="plr7", student__ppo__decay_updates=9)
    assert check_checkpoints(load_config(short / "config.json"), RunDirectory(short)) == 2


def test_a_setting_that_is_newer_than_the_checkpoint_has_its_default(short: Path) -> None:
    def as_before(facts: dict[str, Any]) -> None:
        del facts["settings"]["student"]["ppo"]["adam_eps"]

    forge_facts(short, as_before)
    assert check_checkpoints(SHORT, RunDirectory(short)) == 2
    with pytest.raises(RunDirectoryError, match=r"student.ppo.adam_eps: 1e-05 in the saved run, 0.1 now"):
        check_checkpoints(settings.replace(SHORT, {"student.ppo.adam_eps": 0.1}), RunDirectory(short))


def test_a_new_run_does_not_begin_among_the_checkpoints_of_another(short: Path, capsys) -> None:
    """The newest checkpoints are kept: those of the new run would have been removed."""
    (short / "config.json").unlink()
    assert cli.run(["train", "maze", "dr", "--out", str(short)]) == cli.REFUSED
    assert "a new run needs a directory of its own" in capsys.readouterr().err


USERS_OWN = (
    "metrics.jsonl",
    "levels.csv",
    "evaluations.csv",
    "timing.jsonl",
    "summary.json",
    "lock",
    "tmp-config.json-1",
    "tmp-notes-1",
    "snapshots/tmp-a-1",
    "checkpoints/tmp-step-1",
)


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_bug_a_new_run_replaced_and_removed_the_files_of_somebody_else(tmp_path: Path) -> None:
    for name in USERS_OWN:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"precious {name}")
    before = snapshot(tmp_path)
    code, said = without_backend("train", "maze", "dr", "--out", tmp_path)
    assert code == cli.REFUSED
    assert "holds checkpoints, evaluations.csv, levels.csv and 6 more, and no run" in said
    for resume in (False, True):
        with pytest.raises(RunDirectoryError, match=r"holds checkpoints, .* and no run"):
            run(SHORT, tmp_path, resume=resume)
        with pytest.raises(RunDirectoryError, match=r"holds checkpoints, .* and no run"):
            cenie.train(SHORT, tmp_path, resume=resume, quiet=True)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("other", [{"seed": 1}, {"student.ppo.clip": 0.3}])
def test_bug_a_run_went_on_in_the_directory_of_another_that_had_no_checkpoint_yet(
    short: Path, other: dict[str, Any]
) -> None:
    """Its tables were emptied and its config.json replaced."""
    shutil.rmtree(short / "checkpoints")
    before = snapshot(short)
    config = settings.replace(SHORT, other)
    for begin in (cenie.train, lambda *given, quiet, **named: run(*given, **named)):
        with pytest.raises(RunDirectoryError, match="holds a run of other settings"):
            begin(config, short, resume=True, quiet=True)
    assert snapshot(short) == before


def test_a_config_of_another_program_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model": "bert"}')
    before = snapshot(tmp_path)
    for resume in (False, True):
        with pytest.raises(RunDirectoryError):
            run(SHORT, tmp_path, resume=resume)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["checkpoints", "snapshots"])
def test_bug_a_resumed_run_removed_files_through_a_link(short: Path, name: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(short / name, elsewhere)
    for unfinished in ("tmp-step-00000009", "tmp-cycle-00000009.npz-1"):
        (elsewhere / unfinished).write_text("precious")
    (short / name).symlink_to(elsewhere)
    before = snapshot(elsewhere)
    with pytest.raises(RunDirectoryError, match="it is a link, which leads out of the run directory"):
        run(LONGER, short, resume=True)
    assert snapshot(elsewhere) == before


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.csv", "levels.csv", "timing.jsonl"])
def test_a_table_that_is_a_link_keeps_its_target(short: Path, name: str, tmp_path: Path) -> None:
    shutil.move(short / name, tmp_path / name)
    (short / name).symlink_to(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(RunDirectoryError, match=f"cannot read .*{name}"):
        run(LONGER, short, resume=True)
    assert (tmp_path / name).read_bytes() == before


# Forged and missing facts, files that are no files, escape characters (point 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, None) for name in ("settings", "environment", "env_steps", "updates", "rows")),
        ("env_steps", "many"),
        ("rows", {"metrics.jsonl": "all"}),
        ("deviations", [1]),
        ("environment", {"jax": [[["deep"]]]}),
        ("updates", 1e300),
    ],
)
def test_forged_or_missing_facts_are_named(short: Path, name: str, value: object, capsys) -> None:
    """They gave a KeyError."""

    def forge(facts: dict[str, Any]) -> None:
        del facts[name]
        facts.update({} if value is None else {name: value})

    forge_facts(short, forge)
    for command in (["train", "--resume", str(short)], ["evaluate", str(short)]):
        assert cli.run(command) == cli.REFUSED
        message = capsys.readouterr().err
        assert "no checkpoint can be loaded" in message
        assert f"its facts lack {name}" in message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda facts: facts["settings"].update(magic=1), "magic: unknown setting"),
        (lambda facts: facts["settings"].update(student=[]), "student: expected a group of settings"),
        (lambda facts: facts["settings"].update({str(n): n for n in range(99)}), " more\n"),
    ],
)
def test_forged_settings_are_refused(short: Path, change, reason: str, capsys) -> None:
    forge_facts(short, change)
    assert cli.run(["train", "--resume", str(short)]) == cli.REFUSED
    message = capsys.readouterr().err
    assert reason in message
    assert len(message.splitlines()) < 30


def test_a_checkpoint_that_contradicts_its_own_counters_is_refused(short: Path) -> None:
    forge_facts(short, lambda facts: None, step=1000)
    with pytest.raises(RunDirectoryError, match="of cycle 1000 counts 2 cycles and 2 updates"):
        run(LONGER, short, resume=True)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("may not make a device here")


def terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize("make", [pipe, device, terabyte])
@pytest.mark.parametrize("command", [("train", "--resume"), ("evaluate",)])
def test_a_config_that_is_no_file_does_not_hang(tmp_path: Path, make, command, capsys) -> None:
    make(tmp_path / "config.json")
    assert cli.run([*command, str(tmp_path)]) == cli.BAD_INPUT
    assert "config.json" in capsys.readouterr().err


@pytest.mark.parametrize("make", [pipe, device, terabyte])
@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "evaluations.csv", "levels.csv"])
def test_a_table_that_is_no_file_does_not_hang(short: Path, make, name: str) -> None:
    (short / name).unlink()
    make(short / name)
    with pytest.raises(
        RunDirectoryError, match=rf"cannot read .*{name}: (not a regular file|File too large)"
    ):
        run(LONGER, short, resume=True)


def test_a_run_with_tables_of_format_1_is_refused_before_anything_is_touched(short: Path, capsys) -> None:
    (short / "summary.json").unlink()
    table = short / "evaluations.csv"
    old = table.read_text().replace(",solved,score,", ",solved,", 1)
    table.write_text(old)
    assert cli.run(["train", "--resume", str(short)]) == cli.REFUSED
    assert "evaluations.csv has format 1" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(RunDirectoryError, match="has format 1"):
        run(SHORT, short, resume=True)
    assert table.read_text() == old


ESCAPE = "\x1b]0;owned\x07\x9b31m\u202e"


def test_no_escape_character_of_a_file_reaches_the_terminal(short: Path, capsys) -> None:
    data = read_json(short / "config.json")
    write_json(short / "config.json", data | {ESCAPE: 1})
    assert cli.run(["train", "--resume", str(short)]) == cli.BAD_INPUT
    write_json(short / "config.json", data | {"preset": ESCAPE})
    assert cli.run(["train", "--resume", str(short)]) == cli.REFUSED
    write_json(short / "config.json", data)
    forge_facts(short, lambda facts: facts["settings"].update({ESCAPE: ESCAPE}))
    assert cli.run(["evaluate", str(short)]) == cli.REFUSED
    printed = "".join(capsys.readouterr())
    assert printed.count("owned") >= 3
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


def test_no_escape_character_is_printed_while_training(short: Path, capsys) -> None:
    """The one who held the lock, the preset, the environment and the levels of the table: all from files."""
    shutil.rmtree(short / "checkpoints" / "step-00000002")
    (short / "summary.json").unlink()
    data = read_json(short / "config.json") | {"preset": ESCAPE}
    write_json(short / "config.json", data)
    (short / "lock").write_text(json.dumps({"pid": 1, "host": ESCAPE}))
    own = {"settings": data}
    forge_facts(short, lambda facts: facts["environment"].update(jax=ESCAPE) or facts.update(own))
    with (short / "evaluations.csv").open("a") as table:
        table.write(f"0,0,0,cenie8,{ESCAPE},{ESCAPE},0,0.5,1,1.0,3\n")
    assert cli.run(["train", "--resume", str(short)]) == cli.OK
    printed = "".join(capsys.readouterr())
    assert printed.count("owned") >= 4
    assert not set(printed) & set("\x1b\x07\x9b\u202e")


# Disks that refuse (point 8)


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, number: int, when: Callable[..., bool]) -> None:
    original = getattr(os, call)

    def refusing(*arguments: Any, **named: Any) -> Any:
        if when(*arguments):
            raise OSError(number, "refused")
        return original(*arguments, **named)

    monkeypatch.setattr(os, call, refusing)


@pytest.mark.parametrize(("call", "number"), [("write", errno.ENOSPC), ("open", errno.EROFS)])
def test_an_evaluation_that_cannot_be_written_leaves_the_old_table(
    short: Path, monkeypatch, capsys, call: str, number: int
) -> None:
    """The old one was removed first: a full disk left the header of a table."""
    rows = [EvaluationRow("cenie8", "Labyrinth", "plain", 0, 0.5, True, 1.0, 9)]
    monkeypatch.setattr(evaluate, "evaluate", lambda *_, **__: rows)
    assert cli.run(["evaluate", str(short)]) == cli.OK
    table = short / "evaluation-cenie8-seed0-cycle2.csv"
    before = table.read_bytes()
    assert len(before.splitlines()) == 2
    capsys.readouterr()
    refuse(monkeypatch, call, number, lambda path, flags, *_: call == "write" or flags & os.O_CREAT)
    assert cli.run(["evaluate", str(short)]) == cli.CANNOT_WRITE
    printed = capsys.readouterr()
    assert f"error: cannot write {table}" in printed.err
    assert "Labyrinth" in printed.out
    assert table.read_bytes() == before
    assert not list(short.glob("tmp-*"))


@pytest.mark.parametrize(
    ("call", "number", "file"),
    [
        ("mkdir", errno.EROFS, ""),
        ("mkdir", errno.ENOSPC, ""),
        ("open", errno.EROFS, "lock"),
        ("open", errno.EACCES, "lock"),
        ("pwrite", errno.ENOSPC, "lock"),
        ("open", errno.EROFS, "config.json"),
        ("write", errno.ENOSPC, "config.json"),
    ],
)
def test_a_disk_that_refuses_the_start_of_a_training_ends_it_with_code_4(
    tmp_path: Path, monkeypatch, capsys, call: str, number: int, file: str
) -> None:
    """Not even the lock could be written: a traceback, or the code of a refusal."""
    path = tmp_path / "run"

    def concerns(*arguments: Any) -> bool:
        return call in ("pwrite", "write") or str(arguments[0]).startswith(
            str(path / file).replace("config", "tmp-config")
        )

    refuse(monkeypatch, call, number, concerns)
    assert cli.run(["train", "maze", "dr", "--out", str(path)]) == cli.CANNOT_WRITE
    message = capsys.readouterr().err
    assert f"{path / file}" in message
    assert errno.errorcode[number] in message


# Tables that were changed (point 10)


def test_a_deleted_metrics_file_does_not_pass_silently(short: Path) -> None:
    """The run goes on, and its checkpoints and its summary say for ever what is missing."""
    (short / "metrics.jsonl").unlink()
    printed = run(settings.replace(SHORT, {"updates": 3}), short, resume=True)
    lost = "metrics.jsonl was changed or deleted: 0 rows instead of 2"
    assert f"not bit-exact: {lost}" in printed
    assert facts_of(short)["deviations"] == [f"after cycle 2: {lost}"]
    run(LONGER, short, resume=True)
    summary = read_json(short / "summary.json")
    assert (summary["bit_exact"], summary["deviations"]) == (False, [f"after cycle 2: {lost}"])


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\xfe\0,,\n", b"cycle,level\n0,a\n0\n\n", b'"' * 200_000]
)
def test_a_lost_evaluation_table_does_not_lose_the_summary(
    tmp_path: Path, original: Path, monkeypatch, content: bytes | None
) -> None:
    """Something happens to the table between the last evaluation and the end of the run."""
    evaluate = training._evaluate

    def spoil(run, counters, *arguments, **named) -> None:
        evaluate(run, counters, *arguments, **named)
        if counters.updates == 2:
            run.directory.evaluations.unlink()
            if content is not None:
                run.directory.evaluations.write_bytes(content)

    monkeypatch.setattr(training, "_evaluate", spoil)
    printed = run(SHORT, tmp_path / "run", resume=False)
    summary = read_json(tmp_path / "run" / "summary.json")
    assert (summary["updates"], summary["untrained"], summary["trained"]) == (2, {}, {})
    assert summary["notes"] == [
        f"evaluations.csv has no evaluation on cenie8 {when} training" for when in ("before", "after")
    ]
    assert "evaluations.csv was changed or deleted" in summary["deviations"][0]
    assert summary["notes"][0] in printed
    untouched = read_json(original / "summary.json")
    assert (untouched["bit_exact"], untouched["deviations"], untouched["notes"]) == (True, [], [])


def test_another_suite_after_a_resume_has_no_untrained_rates(short: Path) -> None:
    """The table at the end asked for the levels of one suite among the rates of another."""
    config = settings.replace(LONGER, {"run.suite": "plr7"})
    printed = run(config, short, resume=True)
    summary = read_json(short / "summary.json")
    assert summary["untrained"] == {}
    assert len(summary["trained"]) > 3
    assert "no evaluation on plr7 before training" in printed
    assert summary["bit_exact"] is True


# Other machines (F9)


def test_another_environment_marks_all_later_checkpoints_and_the_summary(short: Path, monkeypatch) -> None:
    real = training.environment_facts()
    assert (facts_of(short)["bit_exact"], facts_of(short)["deviations"]) == (True, [])
    with monkeypatch.context() as patch:
        patch.setattr(training, "environment_facts", lambda: real | {"core_count": 999})
        printed = run(settings.replace(SHORT, {"updates": 3}), short, resume=True)
    reason = f"number of CPU cores: {real['core_count']} when saved, 999 now"
    back = f"number of CPU cores: 999 when saved, {real['core_count']} now"
    assert f"not bit-exact: {reason}" in printed
    assert facts_of(short)["bit_exact"] is False
    run(LONGER, short, resume=True)
    expected = [f"after cycle 2: {reason}", f"after cycle 3: {back}"]
    assert (facts_of(short)["bit_exact"], facts_of(short)["deviations"]) == (False, expected)
    summary = read_json(short / "summary.json")
    assert (summary["bit_exact"], summary["deviations"]) == (False, expected)


# Longer runs (point 13)


def learning_rates(path: Path) -> list[float]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [row["student/learning_rate"] for row in rows]


def test_a_longer_run_is_told_of_the_floor_of_its_learning_rate(short: Path) -> None:
    """It went on at a twentieth of its learning rate without a word."""
    printed = run(LONGER, short, resume=True)
    assert "falls until update 2, as first planned, and stays at 5e-05 from there to update 4" in printed
    assert all(f"--decay {choice}" in printed for choice in ("stretch", "restart", "keep"))
    assert learning_rates(short) == pytest.approx([1e-3, 5.25e-4, 5e-5, 5e-5])
    assert read_json(short / "summary.json")["bit_exact"] is True


@pytest.mark.parametrize(
    ("decay", "schedule", "rates"),
    [
        ("keep", (0, 2), [5e-5, 5e-5]),
        ("stretch", (0, 4), [5.25e-4, 2.875e-4]),
        ("restart", (2, 2), [1e-3, 5.25e-4]),
    ],
)
def test_a_longer_run_stretches_or_restarts_the_decay_if_asked(
    short: Path, decay: str, schedule: tuple[int, int], rates: list[float]
) -> None:
    printed = run(LONGER, short, resume=True, decay=decay)
    assert "as first planned" not in printed
    assert learning_rates(short)[2:] == pytest.approx(rates)
    ppo = load_config(short / "config.json").student.ppo
    assert (ppo.decay_from, ppo.decay_updates) == schedule
    summary = read_json(short / "summary.json")
    assert summary["bit_exact"] == (decay == "keep")
    assert all("after cycle 2: student.ppo.decay_" in line for line in summary["deviations"])
    check_checkpoints(load_config(short / "config.json"), RunDirectory(short))


def test_a_schedule_is_changed_once_also_if_the_command_is_given_again() -> None:
    """After a kill people repeat the command: the learning rate must not rise each time."""
    first = with_decay(LONGER, "restart", 2)
    assert (first.student.ppo.decay_from, first.student.ppo.decay_updates) == (2, 2)
    assert with_decay(first, "restart", 3) == first
    assert with_decay(with_decay(LONGER, "stretch", 2), "stretch", 3) == with_decay(LONGER, "stretch", 2)
    further = settings.replace(first, {"updates": 10})
    again = with_decay(further, "restart", 4)
    assert (again.student.ppo.decay_from, again.student.ppo.decay_updates) == (4, 6)


def test_a_constant_learning_rate_has_no_schedule_to_change() -> None:
    constant = settings.replace(LONGER, {"student.ppo.final_learning_rate_fraction": 1.0})
    assert with_decay(constant, "stretch", 2) == constant
    assert decay_note(constant) is None
    assert decay_note(SHORT) is None


@pytest.mark.parametrize("value", ["slowly", "true"])
def test_a_wrong_way_to_decay_is_refused(short: Path, value: str, capsys) -> None:
    assert cli.run(["train", "--resume", str(short), f"--decay={value}"]) == cli.BAD_INPUT
    assert "decay: must be one of keep, stretch, restart" in capsys.readouterr().err


def test_the_bar_of_a_resumed_run_begins_where_the_run_is() -> None:
    with Progress(Console(file=io.StringIO(), force_terminal=True), 1300) as progress:
        progress.resumed(650)
        terminal = Console(file=io.StringIO(), width=80)
        terminal.print(progress._lines())
    assert isinstance(terminal.file, io.StringIO)
    # The first 650 did not happen now: they say nothing of the time that is left.
    assert " 50% -:--:-- left" in terminal.file.getvalue()


def test_a_finished_run_has_nothing_to_do_and_starts_no_backend(short: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in short.rglob("*")}
    for extra in ([], ["--updates", "1"]):
        code, printed = without_backend("train", "--resume", short, *extra)
        assert code == cli.OK
        assert f"nothing to do: {short} has had 2 updates" in printed
    assert {path: path.stat().st_mtime_ns for path in short.rglob("*")} == before


def test_a_run_killed_before_its_summary_still_writes_it(short: Path) -> None:
    before = (short / "summary.json").read_bytes()
    (short / "summary.json").unlink()
    assert updates_done(SHORT, RunDirectory(short)) is None
    run(SHORT, short, resume=True)
    assert (short / "summary.json").read_bytes() == before
    assert updates_done(SHORT, RunDirectory(short)) == 2


@pytest.mark.parametrize("damage", ["arrays", "summary", "more updates"])
def test_a_run_with_work_left_is_not_called_finished(short: Path, damage: str) -> None:
    config = SHORT
    if damage == "arrays":
        arrays = newest(short) / "arrays.safetensors"
        arrays.write_bytes(arrays.read_bytes()[::-1])
    elif damage == "summary":
        write_json(short / "summary.json", {"cycles": 1, "updates": 1})
    else:
        config = LONGER
    assert updates_done(config, RunDirectory(short)) is None


def test_facts_are_what_was_written(short: Path) -> None:
    facts = read_facts(facts_of(short))
    assert facts.to_data() == facts_of(short)
    assert (facts.updates, facts.env_steps, facts.rows["metrics.jsonl"]) == (2, 2 * 4 * 16, 2)
    assert facts.settings == settings.to_data(SHORT)
    with pytest.raises(Unusable, match="its facts lack version, updates"):
        read_facts({})
