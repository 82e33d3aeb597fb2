"""Traced programs on disk: the same bits with and without them, and never those of something else."""

import contextlib
import dataclasses
import hashlib
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from cenie import Parts, Score
from cenie.experiment.build import build, place, program_settings
from cenie.rundir.checkpoint import digest
from cenie.rundir.files import RunDirectory
from cenie.system.digest import folder_digest
from cenie.teach.cycle import Setup, TrainState, init
from cenie.training import loop as training
from cenie.training.progress import Progress
from cenie.xla import parts as cycle_parts
from cenie.xla import traces
from cenie.xla.parts import CompiledCycles
from cenie.xla.traces import FlatFunction, TracedProgram, read, source_digest, trace_file, write
from tests.tiny import tiny

CYCLES = 5


def fail(*_: object) -> None:
    raise AssertionError("this was traced")


@contextlib.contextmanager
def nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        for part in ("ask_and_play", "learn_all", "tell_all"):
            patched.setattr(cycle_parts, part, fail)
        yield


def begun(method: str) -> tuple[Setup, TrainState, Any]:
    config = tiny(method)
    _, setup = build(config)
    return setup, place(setup, init(setup, 0)), program_settings(config, None)


def results(setup: Setup, state: TrainState, **where: Any) -> tuple[str, bytes]:
    """The state after some cycles, and all that was logged of them."""
    after, counters, metrics, record = CompiledCycles(setup, CYCLES, **where)(state, 1000)
    logged = jax.tree.leaves((counters, metrics, record))
    return digest(after), b"".join(np.asarray(leaf).tobytes() for leaf in logged)


@pytest.mark.parametrize("method", ["plr-robust", "plr-cenie", pytest.param("poet", marks=pytest.mark.slow)])
def test_a_warm_run_has_the_same_bits_as_a_cold_one(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On two devices, on one with novelty, and with students of the source; also where nothing is kept, and
    where programs are compiled without a module, as of parts from Python."""
    setup, state, settings = begun(method)
    assert (setup.mesh is None) == (method == "plr-cenie")
    cold = results(setup, state, settings=settings, directory=tmp_path)
    with nothing_is_traced(monkeypatch):
        assert results(setup, state, settings=settings, directory=tmp_path) == cold
    assert results(setup, state, settings=settings) == cold
    assert results(setup, state) == cold


def cut(content: bytes) -> bytes:
    return content[:-10]


def rubbish(content: bytes) -> bytes:
    """Whole, but no program."""
    header, _, modules = zlib.decompress(content[32:]).partition(b"\n")
    packed = zlib.compress(header + b"\n" + b"x" * len(modules))
    return hashlib.sha256(packed).digest() + packed


def no_header(content: bytes) -> bytes:
    packed = zlib.compress(b"[[1, 2], 3]\n")
    return hashlib.sha256(packed).digest() + packed


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, bytes]]:
    """What a run has kept of its traces, and its results."""
    directory = tmp_path_factory.mktemp("traced")
    setup, state, settings = begun("dr")
    cold = results(setup, state, settings=settings, directory=directory)
    (file,) = directory.iterdir()
    return file, cold


@pytest.mark.parametrize("damage", [cut, rubbish, no_header, lambda _: b"", lambda _: b"x" * 99])
def test_a_damaged_trace_is_ignored_and_replaced(
    damage, traced: tuple[Path, tuple[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    setup, state, settings = begun("dr")
    whole, cold = traced
    file = tmp_path / whole.name
    file.write_bytes(damage(whole.read_bytes()))
    assert results(setup, state, settings=settings, directory=tmp_path) == cold
    assert list(tmp_path.iterdir()) == [file]
    with nothing_is_traced(monkeypatch):
        assert results(setup, state, settings=settings, directory=tmp_path) == cold


def test_a_directory_that_cannot_be_read_or_written_is_done_without(tmp_path: Path):
    file = tmp_path / "not there" / "x-trace"
    write(file, [TracedProgram("f", (), b"")])
    assert read(file) == []
    write(tmp_path, [TracedProgram("f", (), b"")])
    assert read(tmp_path) == []


def test_a_changed_source_setting_or_machine_is_not_served_an_old_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments = [jnp.zeros(3)]
    files = [trace_file(tmp_path, {"a": 1}, arguments), trace_file(tmp_path, {"a": 2}, arguments)]
    files.append(trace_file(tmp_path, {"a": 1}, [jnp.zeros(4)]))
    with jax.default_matmul_precision("float32"):
        files.append(trace_file(tmp_path, {"a": 1}, arguments))
    with monkeypatch.context() as patched:
        patched.setenv("XLA_FLAGS", os.environ["XLA_FLAGS"] + " --xla_cpu_enable_fast_math=true")
        files.append(trace_file(tmp_path, {"a": 1}, arguments))
    with monkeypatch.context() as patched:
        patched.setattr(traces, "source_digest", lambda: "another")
        files.append(trace_file(tmp_path, {"a": 1}, arguments))
    with monkeypatch.context() as patched:
        patched.setattr(traces.metadata, "version", lambda name: "0")
        files.append(trace_file(tmp_path, {"a": 1}, arguments))
    assert len(set(files)) == len(files)
    assert trace_file(tmp_path, {"a": 1}, arguments) == files[0]


def test_every_line_of_the_source_counts(tmp_path: Path):
    found = set()
    for text in ("a = 1\n", "a = 2\n"):
        (tmp_path / "room").mkdir(exist_ok=True)
        (tmp_path / "room" / "module.py").write_text(text)
        folder_digest.cache_clear()
        found.add(source_digest(tmp_path))
    (tmp_path / "room" / "module.py").rename(tmp_path / "room" / "other.py")
    folder_digest.cache_clear()
    found.add(source_digest(tmp_path))
    assert len(found) == 3


def test_bug_a_kept_trace_outlived_a_change_of_the_data(tmp_path: Path):
    """Mazes, circuits and the start of a walker are files of data, which programs have as constants."""
    found = set()
    for text in ("#.", ".#"):
        (tmp_path / "data.txt").write_text(text)
        folder_digest.cache_clear()
        found.add(source_digest(tmp_path))
    assert len(found) == 2


def test_every_setting_that_build_reads_counts():
    config = tiny("plr-cenie")
    settings = program_settings(config, None)
    for path, value in {
        "student.ppo.gamma": 0.5,
        "teacher.replay.capacity": 16,
        "env.max_steps": 9,
        "run.recorded_points": 7,
    }.items():
        assert program_settings(tiny("plr-cenie", **{path: value}), None) != settings, path
    others: dict[str, Any] = {"seed": 5, "run.evaluate_every": 7, "run.cycles_per_chunk": 3}
    assert program_settings(tiny("plr-cenie", **others), None) == settings


def test_parts_from_python_are_never_kept():
    config = tiny("plr-robust")
    assert program_settings(config, Parts()) is not None
    score = Score("spread", lambda inputs: inputs.rollout.reward.std(axis=1))
    assert program_settings(config, Parts(score=score)) is None
    assert program_settings(dataclasses.replace(config, from_python=("domain maze",)), None) is None
    foreign = type("Foreign", (type(config),), {"entry": dataclasses.replace(config.entry)})
    assert program_settings(foreign(**vars(config)), None) is None


def train(
    path: Path, parts: Parts | None = None, *, env_steps: int | None = None, resume: bool = False
) -> str:
    """What a run has written: its newest checkpoint, and the rows of its metrics."""
    config = tiny("dr", **{"updates": 4, "run.env_steps": env_steps})
    with Progress(Console(quiet=True), config.updates) as progress:
        training.train(config, RunDirectory(path), progress, resume=resume, parts=parts)
    newest = max((path / "checkpoints").glob("*/arrays.safetensors"))
    return hashlib.sha256(newest.read_bytes() + RunDirectory(path).metrics.read_bytes()).hexdigest()


def test_a_run_of_the_command_line_is_served_what_an_earlier_one_has_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also after an interruption. A script may have changed our modules and is not; it has the same bits."""
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(training, "kept_programs", lambda: contextlib.nullcontext(kept))
    of_a_script = train(tmp_path / "script", Parts())
    assert list(kept.iterdir()) == []
    assert train(tmp_path / "cold") == of_a_script
    assert len(list(kept.iterdir())) == 1
    with nothing_is_traced(monkeypatch):
        assert train(tmp_path / "warm") == of_a_script
        # A cycle has 64 steps.
        assert train(tmp_path / "twice", env_steps=128) != of_a_script
        assert train(tmp_path / "twice", resume=True) == of_a_script
        with pytest.raises(AssertionError, match="this was traced"):
            train(tmp_path / "other script", Parts())


def test_what_asks_the_host_cannot_be_kept():
    def ask(x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda x: np.asarray(x), jax.ShapeDtypeStruct((3,), jnp.float32), x)

    flat = FlatFunction("ask", ask, jnp.zeros(3))
    with pytest.raises((ValueError, NotImplementedError)):
        flat.traced()


LATER = """
import sys
from pathlib import Path
import jax.numpy as jnp
from cenie.xla.traces import read
(traced,) = read(Path(sys.argv[1]))
print(traced.lowered(4.0 * jnp.eye(3)).compile()(4.0 * jnp.eye(3))[0].sum())
"""


def test_a_kept_program_finds_lapack_in_a_new_process(tmp_path: Path):
    """JAX loads it when a call of it is lowered, which is done again for nothing that was kept: without it,
    the call would end the process. JAX must think of that when it reads a module."""
    flat = FlatFunction("factor", jnp.linalg.cholesky, 4.0 * jnp.eye(3))
    write(tmp_path / "x-trace", [flat.traced()])
    command = [sys.executable, "-c", LATER, str(tmp_path / "x-trace")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "6.0"
