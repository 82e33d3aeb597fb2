"""Copies of the metrics for other programs (TensorBoard, Weights & Biases). They can fail; a run cannot.

The files of the run directory are the record. Each sink works in a daemon thread behind a bounded queue:
whatever it does - raise, hang, be slow - the training loop only ever puts a row in the queue.
"""

import importlib
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cenie.experiment.config import SINK_MODULES

_CAPACITY = 1024
_PATIENCE = 5.0
_OPENING_PATIENCE = 60.0


@runtime_checkable
class Sink(Protocol):
    """Where metrics are copied to. All three methods are called on one thread, in this order."""

    def open(self) -> None: ...

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardSink:
    """Event files in `directory`, readable by TensorBoard. Needs the extra `cenie[tensorboard]`."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._writer: Any = None

    def open(self) -> None:
        self._module = _import("tensorboard")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            # A resumed run repeats the steps after its checkpoint: TensorBoard hides the earlier ones.
            self._writer = self._module.SummaryWriter(str(self._directory), purge_step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandbSink:
    """A Weights & Biases run in `directory`. Needs the extra `cenie[wandb]`.

    Works without account or network: the mode is `offline` unless the variable WANDB_MODE says otherwise.
    """

    def __init__(self, directory: Path, config_data: Mapping[str, Any]):
        self._directory = directory
        self._config = config_data
        self._run: Any = None

    def open(self) -> None:
        wandb = _import("wandb")
        self._run = wandb.init(
            project="cenie",
            group=self._directory.name,
            dir=str(self._directory),
            config=dict(self._config),
            mode=os.environ.get("WANDB_MODE", "offline"),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Guarded:
    """A sink that cannot stop or slow a run: its first failure is reported once, then it gets no more rows.

    `log` never waits. A sink is given up when it raises, when one call takes more than `patience` seconds
    (opening, which may import or connect, 60 seconds), or when it is so slow that the queue is full.
    `close` waits for the rest of the rows at most `patience` seconds. `warn` is called on the thread of
    the caller; the text is also kept in `warning`.
    """

    def __init__(self, name: str, sink: Sink, warn: Callable[[str], None], patience: float = _PATIENCE):
        self.warning: str | None = None
        self._name = name
        self._sink = sink
        self._warn = warn
        self._patience = patience
        self._failure: str | None = None
        self._deadline = time.monotonic() + max(patience, _OPENING_PATIENCE)
        self._rows: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(_CAPACITY)
        self._worker = threading.Thread(target=self._work, name=f"sink-{name}", daemon=True)
        self._worker.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Hand over one row."""
        if self._is_alive():
            self._put((step, dict(values)))

    def close(self) -> None:
        """Finish the rows handed over, within `patience` seconds."""
        if not self._is_alive():
            return
        self._put(None)
        self._worker.join(self._patience)
        if self._worker.is_alive():
            self._give_up(f"did not finish within {self._patience:g} s")
        elif self._failure is not None:
            self._give_up(self._failure)

    def _is_alive(self) -> bool:
        if self.warning is None and self._failure is not None:
            self._give_up(self._failure)
        elif self.warning is None and time.monotonic() > self._deadline:
            self._give_up("does not answer")
        return self.warning is None

    def _put(self, row: tuple[int, dict[str, float]] | None) -> None:
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            self._give_up(f"is too slow: {_CAPACITY} rows are waiting")

    def _give_up(self, reason: str) -> None:
        if self.warning is None:
            self.warning = f"metric sink '{self._name}' {reason}; the run goes on without it"
            self._warn(self.warning)

    def _work(self) -> None:
        try:
            self._sink.open()
            self._deadline = float("inf")
            while (row := self._rows.get()) is not None and self.warning is None:
                self._deadline = time.monotonic() + self._patience
                self._sink.log(*row)
                self._deadline = float("inf")
            self._sink.close()
        except BaseException as error:  # even SystemExit, which wandb raises, must not pass
            self._failure = f"failed ({type(error).__name__}: {str(error)[:200]})"


@dataclass(frozen=True)
class Sinks:
    """All sinks of a run. None of the methods raises or waits longer than `Guarded` allows."""

    members: tuple[Guarded, ...]

    def log(self, row: Mapping[str, Any]) -> None:
        """Hand the numbers of a metrics row to every sink; its `cycle` is the step."""
        values = {
            name: float(value)
            for name, value in row.items()
            if name != "cycle" and isinstance(value, int | float)
        }
        for member in self.members:
            member.log(int(row["cycle"]), values)

    def close(self) -> None:
        for member in self.members:
            member.close()


def missing_sinks(names: Iterable[str]) -> dict[str, str]:
    """The named sinks that are not installed, each with what to do about it. Imports none of them."""
    return {name: _advice(name) for name in names if importlib.util.find_spec(SINK_MODULES[name]) is None}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(SINK_MODULES[name])
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; {_advice(name)}") from error


def _advice(name: str) -> str:
    return f"install it with: pip install 'cenie[{name}]'"


def make_sinks(
    names: Iterable[str], directory: Path, config_data: Mapping[str, Any], warn: Callable[[str], None]
) -> Sinks:
    """The named sinks (`tensorboard`, `wandb`), guarded and opening. Their modules are imported only now."""
    makers: dict[str, Callable[[], Sink]] = {
        "tensorboard": lambda: TensorBoardSink(directory / "tensorboard"),
        "wandb": lambda: WandbSink(directory, config_data),
    }
    return Sinks(tuple(Guarded(name, makers[name](), warn) for name in names))
