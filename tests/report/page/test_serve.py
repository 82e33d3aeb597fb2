"""`cenie watch`: real requests to the real server, also from an attacker."""

import contextlib
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest

from cenie.command.cli import run as cenie
from cenie.report.page.serve import Watched, open_server
from cenie.rundir.files import write_json
from tests.report.page.made import PaintedStudio, make_run


@contextmanager
def served(watched):
    with open_server(lambda: watched.published) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def ask(port, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{port}" if host is None else host)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_page_and_its_news_are_served(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    watched = Watched([path])
    with served(watched) as port:
        answer, page = ask(port, "/")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert b"connect-src 'self'" in page
        assert json.loads(ask(port, "/state")[1]) == {"revision": 1, "problem": ""}
        assert not watched.refresh()
        write_json(path / "summary.json", {"version": "0.1.0", "updates": 15})
        assert watched.refresh()
        assert json.loads(ask(port, "/state?seen=1")[1])["revision"] == 2
        data = json.loads(ask(port, "/data.json")[1])
        assert (data["live"], data["runs"][0]["finished"]) == (True, True)
        assert watched.refresh(PaintedStudio())  # there are pictures now
        assert json.loads(ask(port, "/data.json")[1])["curricula"][0]["pictures"]


@pytest.mark.parametrize(
    "path",
    [
        "/config.json",
        "/../config.json",
        "/%2e%2e/config.json",
        "//etc/passwd",
        "/run/",
        "/data.json/..",
        "/?",
        "*",
    ],
)
def test_nothing_else_is_there(tmp_path, path):
    watched = Watched([make_run(tmp_path / "run")])
    with served(watched) as port:
        answer, content = ask(port, path)
    if path == "/?":
        assert answer.status == 200
    else:
        assert (answer.status, content) == (404, b"there is nothing here\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "", "localhost.evil.example:80"]
)
def test_other_names_are_not_answered_to(tmp_path, host):
    watched = Watched([make_run(tmp_path / "run")])
    with served(watched) as port:
        assert ask(port, "/data.json", host=host)[0].status == 403
        assert ask(port, "/state", host=f"localhost:{port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_only_get_is_answered(tmp_path, method):
    watched = Watched([make_run(tmp_path / "run")])
    with served(watched) as port:
        answer, _ = ask(port, "/", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("how", ["at once", "in the middle", "half a request"])
def test_browsers_that_leave_are_no_news(tmp_path, capfd, how):
    """They were tracebacks on the terminal of whoever watches: BrokenPipeError and ConnectionResetError."""
    watched = Watched([make_run(tmp_path / "run")])
    request = (
        b"GET / HTTP/1.0\r\n" if how == "half a request" else b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
    )
    with served(watched) as port:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                # To leave is to reset the connection, whatever is on the way.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.sendall(request % port if b"%d" in request else request)
                if how == "in the middle":
                    client.recv(1000)
        assert ask(port, "/state")[0].status == 200
        time.sleep(0.5)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://[ HTTP/1.1",
        b"GET",
        b"\x00\xff\x16\x03",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1",
        b"GET / HTTP/9.9",
        b"GET /%ff%00 HTTP/1.1",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200,
        b"GET / HTTP/1.1\r\nHost: \xff\xfe",
    ],
)
def test_requests_that_are_none_are_refused_without_a_traceback(tmp_path, capfd, line):
    watched = Watched([make_run(tmp_path / "run")])
    with served(watched) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(line + b"\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while client.recv(65536):
                    pass
        assert ask(port, "/state")[0].status == 200
    assert capfd.readouterr().err == ""


def test_data_that_is_no_json_leaves_the_page_of_before(tmp_path, monkeypatch):
    path = make_run(tmp_path / "run", finished=False)
    watched = Watched([path])
    monkeypatch.setattr("cenie.report.page.serve.page_data", lambda *_, **__: {"number": float("nan")})
    write_json(path / "summary.json", {"version": "0.1.0", "updates": 15})
    assert watched.refresh()
    assert "could not be made anew" in watched.published.problem
    assert watched.published.data["runs"]


def test_a_page_that_cannot_be_made_anew_stays_and_says_so(tmp_path):
    path = make_run(tmp_path / "run", finished=False)
    watched = Watched([path])

    class Broken(PaintedStudio):
        def begin_page(self):
            raise RuntimeError("out of paint")

    studio = Broken.__new__(Broken)
    assert watched.refresh(studio)
    assert "out of paint" in watched.published.problem
    assert watched.published.data["runs"]


def test_a_run_that_has_just_begun_is_watched(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.json").write_text("{")
    data = Watched([path]).published.data
    assert data["runs"] == []
    assert "run is left out" in data["skipped"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["watch"], 2, "expected RUN"),
        (["watch", "nowhere"], 3, "no run directory"),
        (["watch", "RUN", "--port", "99999"], 2, "port"),
        (["watch", "RUN", "--every", "x"], 2, "every"),
        (["watch", "RUN", "--open"], 2, "open"),
    ],
)
def test_bad_requests_are_refused_at_once(tmp_path, capsys, arguments, code, message):
    run = str(make_run(tmp_path / "run"))
    assert cenie([run if word == "RUN" else word for word in arguments]) == code
    assert message in capsys.readouterr().err


def test_a_taken_port_is_named(tmp_path, capsys):
    path, before = make_run(tmp_path / "run"), os.nice(0)
    with served(Watched([path])) as port:
        assert cenie(["watch", str(path), "--port", str(port), "--no-pictures"]) == 2
    assert f"{port} cannot be used" in capsys.readouterr().err
    assert os.nice(0) == before, "only a watch that begins gives way to others"


def test_it_tells_the_address_and_ends_with_ctrl_c(tmp_path):
    path = make_run(tmp_path / "run")
    command = [
        sys.executable,
        "-m",
        "cenie.command.cli",
        "watch",
        str(path),
        "--no-pictures",
        "--every",
        "0.1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        assert ask(port, "/state")[0].status == 200
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
