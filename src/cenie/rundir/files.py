"""The run directory: which files a run has, who may write to them, and when two configs agree.

Imports no JAX and nothing else of the library but the file writer, so that the report can use it too.
The files are described in docs/reference/run-directory.md.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cenie.system.durable import (
    TEMPORARY,
    WriteError,
    explain,
    is_unfinished,
    is_wrong_kind,
    open_regular,
    read_limited,
    remove_quietly,
    replace_file,
    strict_json,
)

FORMAT = 2
"""Version of the tables and of `summary.json`, which names it."""

_SMALL = 16 * 2**20
_LOCK_BYTES = 200
_SHOWN = 3
_LONGEST_NAME = 120
"""Bytes: most file systems take 255, and a name gets a beginning and an end yet."""


class RunDirectoryError(Exception):
    """The run directory cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class RunDirectory:
    """The names of the files of one run. Making this object touches nothing."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def timing(self) -> Path:
        return self.path / "timing.jsonl"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.csv"

    @property
    def levels(self) -> Path:
        return self.path / "levels.csv"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def lock_file(self) -> Path:
        return self.path / "lock"

    def check_free(self) -> None:
        """Raise `RunDirectoryError` if something is here that no run has made; touches nothing.

        A directory with a config.json is a run's. Before a run writes that file there is only its lock.
        """
        if os.path.lexists(self.config):
            return
        try:
            found = sorted(os.listdir(self.path))
        except FileNotFoundError:
            return
        except ValueError as error:  # a zero byte
            raise RunDirectoryError(f"cannot create {self.path}: {error}") from error
        except OSError as error:
            raise _refused(f"cannot create {self.path}", error) from error
        foreign = [name for name in found if not self._is_before_config(name)]
        if foreign:
            more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
            raise RunDirectoryError(
                f"{self.path} holds {', '.join(foreign[:_SHOWN])}{more}, and no run: a new run needs a "
                "directory of its own, one that does not exist or is empty"
            )

    def _is_before_config(self, name: str) -> bool:
        """Whether a run that was stopped before it wrote its config.json may have left this."""
        if name != self.lock_file.name:
            return is_unfinished(name) and name.startswith(f"{TEMPORARY}{self.config.name}-")
        if not self.lock_file.is_file() or self.lock_file.is_symlink():
            return True  # It is refused, with the reason, by who opens it.
        try:
            return _holder(read_limited(self.lock_file, _LOCK_BYTES)) != _UNKNOWN
        except OSError:
            return False

    def create(self) -> None:
        """Make the directory; one that is there already is kept."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(f"cannot create {self.path}", error) from error

    @contextlib.contextmanager
    def lock(self) -> Iterator[str | None]:
        """Be the only writer. Gives a note if an earlier process died without releasing the lock.

        The kernel drops the lock with the process, even after `kill -9`; the pid and host in the file
        only tell people who holds it. Raises `RunDirectoryError`, before anything is touched, if the
        directory is used already, by a process or for something else.
        """
        self.check_free()
        self.create()
        descriptor = self._open_lock()
        try:
            note = self._take_lock(descriptor)
            for name in filter(is_unfinished, os.listdir(self.path)):
                remove_quietly(self.path / name)
            try:
                yield note
            finally:
                # The kernel drops the lock anyway; the text in the file is only for people.
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def in_use_by(self) -> str | None:
        """The holder of the lock, in words; None if there is none."""
        try:
            descriptor = open_regular(self.lock_file, os.O_RDONLY)
        except OSError:
            return None
        with open(descriptor, "rb") as file:
            holder = _holder(file.read(_LOCK_BYTES))
            # A lock that was released is not tried: a process that takes it now would be refused.
            if holder is None:
                return None
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return holder
            except OSError:
                return None
        return None

    def _open_lock(self) -> int:
        try:
            return open_regular(self.lock_file, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise _refused(f"cannot write {self.lock_file}", error) from error

    def _take_lock(self, descriptor: int) -> str | None:
        holder = _holder(os.pread(descriptor, _LOCK_BYTES, 0))
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(
                f"{self.path} is in use by {holder or 'another process'}; "
                "wait for it, stop it, or choose another directory"
            ) from None
        except OSError as error:
            raise RunDirectoryError(f"cannot lock {self.lock_file}: {explain(error)}") from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except OSError as error:
            raise WriteError(f"cannot write {self.lock_file}: {explain(error)}", error.errno) from error
        return f"{holder} ended without releasing {self.path}; its lock was taken over" if holder else None


def _refused(what: str, error: OSError) -> Exception:
    """A disk that refuses is one thing, something else in the place of a file or directory another."""
    message = f"{what}: {explain(error)}"
    return RunDirectoryError(message) if is_wrong_kind(error) else WriteError(message, error.errno)


def _holder(content: bytes) -> str | None:
    """The writer of the lock file, in words; None if it was released."""
    if not content.strip():
        return None
    try:
        data = json.loads(content)
        return f"process {int(data['pid'])} on {str(data['host'])[:80]}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return _UNKNOWN


_UNKNOWN = "an unknown process"


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, atomically. NaN and infinities are an error. Raises `WriteError`."""
    # Half of a surrogate pair, which JSON can name and UTF-8 cannot hold, becomes its JSON escape.
    replace_file(path, strict_json(data).encode(errors="backslashreplace"))


def read_json(path: Path, limit: int = _SMALL) -> Any:
    """Plain data of a small JSON file. Raises `RunDirectoryError` with the reason if that is impossible."""
    try:
        content = read_limited(path, limit)
        return json.loads(content, parse_constant=_refuse_constant, parse_float=_finite)
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {explain(error)}") from error
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is not valid JSON: {error}") from error


def writable(data: Any) -> Any:
    """Plain data with texts that UTF-8 can hold: JSON may name half of a surrogate pair."""
    if isinstance(data, str):
        return data.encode(errors="replace").decode()
    if isinstance(data, list):
        return [writable(item) for item in data]
    if isinstance(data, dict):
        return {writable(name): writable(value) for name, value in data.items()}
    return data


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(text: str) -> float:
    """A number of JSON. One like 1e999 is valid JSON, but no number of ours, nor can it be written again."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def free_name(base: Path) -> Path:
    """The first of `base`, `base-2`, `base-3`, ... that does not exist."""
    candidate, number = base, 1
    while os.path.lexists(candidate):
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate


def file_name(text: str) -> str:
    """A name of one file, in no other directory, by which people know the text again.

    Letters, digits and `_.+-` stay; colons, blanks and @ become hyphens. If anything else has to go, the name
    ends with a few digits of the hash of the whole text, so that different texts have different names.
    """
    plain = re.sub(r"[:@ ]", "-", text)
    kept = re.sub(r"[^\w.+-]+", "-", plain).lstrip(".")
    kept = kept.encode()[:_LONGEST_NAME].decode(errors="ignore")
    if kept == plain and kept:
        return kept
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{kept}-{digest}" if kept else digest


def differing_settings(
    saved: Any, now: Any, ignore: Iterable[str] = (), only: Iterable[str] | None = None
) -> list[str]:
    """One line for each setting that differs.

    `ignore` names dotted paths (a setting or a whole group) left out, `only` those to look at, if not all.
    """
    ignored, wanted = tuple(ignore), None if only is None else tuple(only)
    ours, theirs = dict(flat(saved)), dict(flat(now))
    lines = []
    for path in sorted(ours.keys() | theirs.keys()):
        if _is_within(path, ignored) or not (wanted is None or _is_within(path, wanted)):
            continue
        before, after = (
            json.dumps(flat[path], sort_keys=True) if path in flat else "not set" for flat in (ours, theirs)
        )
        if before != after:
            lines.append(f"{path}: {before} in the saved run, {after} now")
    return lines


def flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of plain settings with its dotted path."""
    if isinstance(data, Mapping) and data:
        for name, value in data.items():
            yield from flat(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, data


def _is_within(path: str, groups: tuple[str, ...]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in groups)
