"""A metric sink may raise, hang or crawl: the run goes on, and the user is told once."""

import sys
import threading
import tomllib
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from cenie.training import sinks
from cenie.training.sinks import SINK_MODULES, Guarded, Sinks, make_sinks, missing_sinks

FOREVER = 600.0


class Recorder:
    """A sink that keeps what it is given, and misbehaves in one of its methods."""

    def __init__(self, method: str = "", misbehave: Callable[[], object] = lambda: None):
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.calls: list[str] = []
        self._method, self._misbehave = method, misbehave

    def _call(self, method: str) -> None:
        self.calls.append(method)
        if method == self._method:
            self._misbehave()

    def open(self) -> None:
        self._call("open")

    def log(self, step: int, values: dict[str, float]) -> None:
        self._call("log")
        self.rows.append((step, dict(values)))

    def close(self) -> None:
        self._call("close")


def raising(error: BaseException) -> Callable[[], None]:
    def misbehave() -> None:
        raise error

    return misbehave


def wait_for_failure(guarded: Guarded) -> None:
    guarded._worker.join(10)
    assert not guarded._worker.is_alive()


def test_rows_arrive_in_order_and_only_numbers() -> None:
    recorder, warnings = Recorder(), []
    group = Sinks((Guarded("good", recorder, warnings.append),))
    for cycle in range(5):
        group.log({"cycle": cycle, "loss": cycle / 2, "branch": "new", "missing": None, "solved": True})
    group.close()
    assert recorder.rows == [(cycle, {"loss": cycle / 2, "solved": 1.0}) for cycle in range(5)]
    assert recorder.calls == ["open"] + ["log"] * 5 + ["close"]
    assert warnings == []


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1), KeyboardInterrupt()])
@pytest.mark.parametrize("method", ["open", "log", "close"])
def test_a_sink_that_raises_is_dropped_with_one_warning(method: str, error: BaseException) -> None:
    recorder, warnings = Recorder(method, raising(error)), []
    guarded = Guarded("bad", recorder, warnings.append)
    guarded.log(1, {"loss": 1.0})
    if method != "close":
        wait_for_failure(guarded)
    for step in range(2, 5):
        guarded.log(step, {"loss": 1.0})
    guarded.close()
    guarded.close()
    assert warnings == [guarded.warning]
    assert f"metric sink 'bad' failed ({type(error).__name__}" in warnings[0]
    assert warnings[0].endswith("the run goes on without it")
    assert recorder.calls.count(method) == 1


@pytest.mark.parametrize("method", ["open", "log", "close"])
def test_a_sink_that_hangs_is_dropped_with_one_warning(method: str) -> None:
    release = threading.Event()
    recorder, warnings = Recorder(method, lambda: release.wait(FOREVER)), []
    guarded = Guarded("stuck", recorder, warnings.append, patience=0.5)
    guarded.log(1, {"loss": 1.0})
    guarded.close()
    guarded.log(2, {"loss": 1.0})
    guarded.close()
    assert warnings == ["metric sink 'stuck' did not finish within 0.5 s; the run goes on without it"]
    release.set()
    guarded._worker.join(10)


@pytest.mark.parametrize("method", ["open", "log"])
def test_a_hanging_sink_is_noticed_while_the_run_goes_on(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "open":
        monkeypatch.setattr(sinks, "_OPENING_PATIENCE", 0.05)
    release, inside = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        release.wait(FOREVER)

    warnings: list[str] = []
    guarded = Guarded("stuck", Recorder(method, hang), warnings.append, patience=0.05)
    guarded.log(1, {})
    assert inside.wait(10)
    threading.Event().wait(0.1)
    for step in range(2, 9):
        guarded.log(step, {})
    assert warnings == ["metric sink 'stuck' does not answer; the run goes on without it"]
    assert guarded._rows.qsize() <= 1
    release.set()
    guarded._worker.join(0.01)


def test_a_sink_that_cannot_keep_up_is_dropped_when_the_queue_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sinks, "_CAPACITY", 3)
    release, warnings = threading.Event(), []
    guarded = Guarded("slow", Recorder("open", lambda: release.wait(FOREVER)), warnings.append)
    for step in range(9):
        guarded.log(step, {})
    assert warnings == ["metric sink 'slow' is too slow: 3 rows are waiting; the run goes on without it"]
    release.set()
    guarded._worker.join(10)


def test_one_bad_sink_does_not_touch_the_others() -> None:
    good, warnings = Recorder(), []
    bad = Guarded("bad", Recorder("open", raising(OSError("no network"))), warnings.append)
    group = Sinks((bad, Guarded("good", good, warnings.append)))
    wait_for_failure(bad)
    group.log({"cycle": 1, "loss": 2.0})
    group.close()
    assert good.rows == [(1, {"loss": 2.0})]
    assert len(warnings) == 1


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    warnings: list[str] = []
    (made,) = make_sinks(["tensorboard"], tmp_path, {}, warnings.append).members
    made._patience = 60.0  # the import may be slow on a busy machine, and that is not the point here
    made.log(3, {"loss": 0.25})
    made.close()
    assert warnings == []
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"loss" in events.read_bytes()


class FakeWandb(types.ModuleType):
    """As much of the interface as the sink uses."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.seen: list[object] = []

    def init(self, **options: object) -> "FakeWandb":
        self.seen.append(options)
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.seen.append((step, values))

    def finish(self) -> None:
        self.seen.append("finish")


@pytest.mark.parametrize(("variable", "mode"), [(None, "offline"), ("online", "online")])
def test_wandb_is_offline_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, mode: str
) -> None:
    fake, warnings = FakeWandb(), []
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if variable is not None:
        monkeypatch.setenv("WANDB_MODE", variable)
    group = make_sinks(["wandb"], tmp_path, {"seed": 1}, warnings.append)
    group.log({"cycle": 3, "loss": 0.25})
    group.close()
    options = {"project": "cenie", "group": tmp_path.name, "dir": str(tmp_path), "config": {"seed": 1}}
    assert fake.seen == [options | {"mode": mode}, (3, {"loss": 0.25}), "finish"]
    assert warnings == []


def test_a_sink_that_is_not_installed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    warnings: list[str] = []
    group = make_sinks(["wandb"], tmp_path, {}, warnings.append)
    wait_for_failure(group.members[0])
    group.log({"cycle": 1})
    group.close()
    (warning,) = warnings
    assert "metric sink 'wandb' failed (ModuleNotFoundError" in warning
    assert "pip install 'cenie[wandb]'" in warning


def test_missing_sinks_name_the_extra_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    monkeypatch.setattr(sys.modules["wandb"], "__spec__", object())
    missing = {"tensorboard": "install it with: pip install 'cenie[tensorboard]'"}
    assert missing_sinks(["tensorboard", "wandb"]) == missing
    assert missing_sinks([]) == {}


def test_every_sink_has_an_extra_of_its_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert SINK_MODULES.keys() <= project["project"]["optional-dependencies"].keys()


def test_no_sink_module_is_imported_unless_named() -> None:
    for name in ("wandb", "tensorboardX"):
        assert name not in vars(sinks)
    assert make_sinks([], Path("."), {}, pytest.fail).members == ()
