"""HTTP questions against real servers that behave and that do not."""

from __future__ import annotations

import http.server
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ddtree_console.hostside import ask
from ddtree_console.hostside import http as http_command
from ddtree_console.hostside.roots import Roots
from tests.hostside.support import FakeHost, waiting_child

KEY = "sk-canary-3141"


class Handler(http.server.BaseHTTPRequestHandler):
    """Echoes what it was asked; some paths misbehave."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answers by path."""
        if self.path == "/stall":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"abc")
            self.wfile.flush()
            stalled.wait(5)
            return
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
            return
        length = int(self.headers.get("Content-Length", 0))
        body = json.dumps(
            {"path": self.path, "auth": self.headers.get("Authorization"), "body": self.rfile.read(length).decode()}
        ).encode()
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Silent."""


stalled = threading.Event()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A real HTTP server."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    stalled.set()
    server.shutdown()
    server.server_close()


@contextmanager
def raw_server(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that does one thing to its first client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                behave(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(5)


def test_an_answer_is_an_answer_whatever_its_status(port: int) -> None:
    got = ask.ask(port, "0.0.0.0", "POST", "/x", {"n": 1}, 5)
    assert got.status == 200
    assert json.loads(got.body) == {"path": "/x", "auth": None, "body": '{"n": 1}'}
    assert ask.ask(port, "127.0.0.1", "GET", "/none").status == 404
    assert ask.ask(port, "127.0.0.1", "GET", "/chunked").body == b"abcde"


def test_no_proxy_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask.ask(port, "127.0.0.1", "GET", "/x").status == 200


def test_the_deadline_holds_for_the_whole_answer(port: int) -> None:
    began = time.monotonic()
    got = ask.ask(port, "127.0.0.1", "GET", "/stall", None, 0.3)
    assert (got.status, got.error) == (None, "answered 200, then stalled within 0.3 s")
    assert time.monotonic() - began < 2


def hang_up(client: socket.socket) -> None:
    """Reads the question and goes."""
    while b"\r\n\r\n" not in client.recv(65536):
        continue


def drip(client: socket.socket) -> None:
    """A byte now and then, for ever: each keeps a per-read timeout from firing."""
    client.recv(1000)
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    try:
        for _ in range(100):
            client.sendall(b"x")
            time.sleep(0.05)
    except OSError:
        return


def test_a_dripping_server_does_not_outlast_the_deadline() -> None:
    with raw_server(drip) as dripping:
        began = time.monotonic()
        assert ask.ask(dripping, "127.0.0.1", "GET", "/", None, 0.4).status is None
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        (hang_up, "closed without an answer"),
        (lambda client: client.sendall(b"SSH-2.0-x\r\n"), "BadStatusLine"),
    ],
)
def test_what_is_no_http_server(behave: Callable[[socket.socket], None], said: str) -> None:
    with raw_server(behave) as odd:
        assert said in ask.ask(odd, "127.0.0.1", "GET", "/", None, 2).error


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        free = sock.getsockname()[1]
    assert ask.ask(free, "127.0.0.1", "GET", "/").error == "connection refused"


def test_where_to_connect() -> None:
    assert [ask.reachable(a) for a in ("", "0.0.0.0", "::", "::ffff:10.0.0.1", "10.0.0.2", "fe80::1")] == [
        "127.0.0.1",
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "10.0.0.2",
        "fe80::1",
    ]


@pytest.mark.parametrize("words", [["--api-key", KEY], [f"--api-key={KEY}"]])
def test_the_key_is_read_used_and_never_told(port: int, words: list[str]) -> None:
    child = waiting_child(*words)
    try:
        assert ask.bearer_of(Roots(), child.pid) == KEY
        question = {"port": port, "path": "/x", "pid": child.pid, "auth": True}
        answer = http_command.answer(Roots(), question)
    finally:
        child.communicate()
    assert answer["status"] == 200
    # the server got it and echoed it; what leaves the host does not hold it
    assert json.loads(answer["body"])["auth"] == "Bearer ***"
    assert KEY not in json.dumps(answer)


def test_no_key() -> None:
    child = waiting_child("--api-key")
    assert ask.bearer_of(Roots(), child.pid) is None
    child.communicate()
    assert ask.bearer_of(Roots(), child.pid) is None


def test_the_command(host: FakeHost, port: int) -> None:
    (answer,) = host.run("http", {"port": port, "path": "/x", "method": "GET", "auth": True, "pid": 0})
    assert answer["status"] == 200
    (refusal,) = host.run("http", {"port": port, "path": "x", "method": "GET"})
    assert (refusal["ok"], refusal["code"]) == (False, 2)
