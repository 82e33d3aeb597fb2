"""`cenie watch`: the page of a run while it goes on, served to a browser on this machine."""

import contextlib
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cenie.command.exit_codes import OK, say
from cenie.command.options import own_domains, read_request
from cenie.report.page.serve import Watched, address_of, open_server
from cenie.report.page.write import check_installed, open_studio
from cenie.rundir.files import RunDirectory, RunDirectoryError
from cenie.settings import Problem, SettingsError, setting
from cenie.system.durable import explain
from cenie.system.signals import GracefulStop
from cenie.system.streams import flush_streams
from cenie.xla.flags import show_devices

if TYPE_CHECKING:
    from cenie.envs.base import Domain

USAGE = """\
cenie watch RUN ... [--port N] [--every SECONDS] [--no-pictures] [--domain MODULE:ATTRIBUTE]

serves the page of runs on this machine only, and makes it anew while they go on; Ctrl-C ends it

--port N         by default a free one is taken; the address is printed
--every SECONDS  how often to look for new results (10)
--domain M:A     a domain of your own, which is imported for pictures of its levels (several: with commas)
--no-pictures    neither draw levels nor film the student, which takes some computing time beside the training
"""


_LONG, _SHORT = 3600.0, 1.0
"""Seconds between two looks at the clock, and that a picture may still take when somebody has enough."""


@dataclass(frozen=True)
class WatchRequest:
    """The request of `cenie watch`, besides runs."""

    port: int = setting(0, minimum=0, maximum=65_535)
    every: float = setting(10.0, minimum=0.1, maximum=3600)
    no_pictures: bool = False


def watch_command(words: list[str], options: dict[str, str]) -> int:
    if not words:
        raise SettingsError([Problem("watch", "expected RUN, e.g. `cenie watch runs/maze-dr-quick-seed0`")])
    domain = options.pop("domain", None)
    request = read_request(WatchRequest, options)
    paths = [Path(word) for word in words]
    for path in paths:
        if not RunDirectory(path).config.is_file():
            raise RunDirectoryError(f"{path} is no run directory: it has no config.json")
    check_installed()
    # Training comes first: a mere viewer takes no accelerator, and no more of the processor than is left.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    show_devices(1)
    domains = own_domains(domain)
    watched = Watched(paths)
    try:
        server = open_server(lambda: watched.published, request.port)
    except OSError as error:
        raise SettingsError([Problem("port", f"{request.port} cannot be used: {explain(error)}")]) from error
    with contextlib.suppress(OSError):
        os.nice(10)
    with GracefulStop() as stop, server:
        threading.Thread(target=server.serve_forever, name="watch", daemon=True).start()
        say(f"watch at {address_of(server)} (this machine only; Ctrl-C ends it)")
        sys.stdout.flush()
        given = (watched, request, stop, domains)
        looking = threading.Thread(target=_look, args=given, name="looking", daemon=True)
        looking.start()
        while not stop.wait(_LONG):
            pass
        server.shutdown()
        looking.join(_SHORT)
    if looking.is_alive():
        # It compiles something and would not hear of it for a while. Nothing is lost: it writes no file.
        flush_streams()
        os._exit(OK)
    return OK


def _look(
    watched: Watched, request: WatchRequest, stop: GracefulStop, domains: Mapping[str, "Domain"]
) -> None:
    """Look for news until somebody stops it."""
    if request.no_pictures:
        while not stop.wait(request.every):
            watched.refresh()
        return
    studio = open_studio(interrupted=lambda: stop.requested, domains=domains)
    from cenie.report.page.pictures import InterruptedDrawing

    with contextlib.suppress(InterruptedDrawing):
        while not stop.requested:
            watched.refresh(studio)
            stop.wait(request.every)
