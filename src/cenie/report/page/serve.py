"""The page of runs that go on, served to a browser on this machine. Loads no JAX, but to draw pictures.

Whatever is asked for, there are three answers: the page, its data, and whether there is anything new. Nothing
is read from the disk because a browser says so. Only names of this machine are answered to, so that a page
from elsewhere cannot ask in its reader's stead under a name of its own (DNS rebinding).
"""

import http.server
import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cenie.report.page.data import LIMITS, Limits, page_data
from cenie.report.page.write import json_for_html, page_html
from cenie.report.runs import group_runs, open_runs
from cenie.rundir.files import RunDirectory

if TYPE_CHECKING:
    from cenie.report.page.pictures import Studio

LOOPBACK = "127.0.0.1"
_NAMES = (LOOPBACK, "localhost", "[::1]")
_METHODS = ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_PATIENCE = 10
"""Seconds that a browser may take to say what it wants."""


@dataclass(frozen=True)
class Published:
    """The data that is served at the moment. The page is made of the data when it is asked for."""

    data: dict[str, Any]
    problem: str = ""


class Watched:
    """The page of some run directories, made anew when there is something new in them."""

    def __init__(self, paths: Sequence[Path], *, limits: Limits = LIMITS):
        self._paths, self._limits = list(paths), limits
        self._lock = threading.Lock()
        self._seen: object = None
        self._published = Published({})
        self.refresh()

    @property
    def published(self) -> Published:
        with self._lock:
            return self._published

    def refresh(self, studio: "Studio | None" = None) -> bool:
        """Make the page anew if a file has changed, or if there are pictures now; whether it was made."""
        seen = (studio is not None, *map(_fingerprint, self._paths))
        if seen == self._seen:
            return False
        problem = ""
        try:
            opened = open_runs(self._paths)
            groups = group_runs(opened.runs)
            data = page_data(groups, skipped=opened.skipped, studio=studio, limits=self._limits)
            json_for_html(data)  # What cannot be sent is found here, where the page of before can stay.
        except Exception as error:  # The run goes on, and so does its viewer.
            problem = f"The page could not be made anew: {error}"
            data = dict(self._published.data) or page_data([], skipped=[problem])
        number = self._published.data.get("revision", 0)
        with self._lock:
            self._published = Published({**data, "live": True, "revision": number + 1}, problem)
        self._seen = seen
        return True


def _path_of(target: str) -> str:
    """The path that a request names; an empty one if it names none."""
    try:
        return urlsplit(target).path
    except ValueError:
        return ""


def _fingerprint(path: Path) -> tuple[Any, ...]:
    """A value that changes when a run writes something that the page shows."""
    files = RunDirectory(path)
    watched = (files.config, files.evaluations, files.levels, files.metrics, files.summary, files.snapshots)
    return tuple(map(_stamp, (*watched, files.checkpoints, *sorted(path.glob("evaluation-*.csv")))))


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def open_server(published: Callable[[], Published], port: int = 0) -> http.server.ThreadingHTTPServer:
    """A server on the loopback address; port 0 takes a free one. Raises `OSError` if that is impossible."""

    class Handler(_Handler):
        current = staticmethod(published)

    return _Server((LOOPBACK, port), Handler)


def address_of(server: http.server.ThreadingHTTPServer) -> str:
    return f"http://{LOOPBACK}:{server.server_address[1]}/"


class _Server(http.server.ThreadingHTTPServer):
    """Serves each browser in a thread of its own, which ends with the program."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has left before its answer was complete: readers do that."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers to GET, with what is published at the moment."""

    current: Callable[[], Published]
    timeout = _PATIENCE
    server_version = "cenie"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_asked_by_a_known_name():
            self._answer(403, "text/plain", b"this server answers to names of its own machine only\n")
            return
        published, path = self.current(), _path_of(self.path)
        if path == "/":
            self._answer(200, "text/html", page_html(published.data).encode())
        elif path == "/data.json":
            self._answer(200, "application/json", json_for_html(published.data).encode())
        elif path == "/state":
            state = {"revision": published.data["revision"], "problem": published.problem}
            self._answer(200, "application/json", json.dumps(state).encode())
        else:
            self._answer(404, "text/plain", b"there is nothing here\n")

    def refuse(self) -> None:
        """Whatever is not GET."""
        self._answer(405, "text/plain", b"only GET is answered\n")

    def _is_asked_by_a_known_name(self) -> bool:
        port = self.connection.getsockname()[1]
        host = self.headers.get("Host", "")
        return host in {f"{name}:{port}" for name in _NAMES} | (set(_NAMES) if port == 80 else set())

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == 405:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the user who watches."""


for _method in _METHODS:
    setattr(_Handler, f"do_{_method}", _Handler.refuse)
