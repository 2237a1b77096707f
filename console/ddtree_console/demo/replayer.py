"""A real process that replays a recorded SGLang: recorded bytes at recorded times, through a real HTTP server.

    python3 replayer.py --recording NAME --speed 20 --port P --model-path M [any SGLang flags]
    python3 replayer.py --conditions FILE --host-name HOST --speed 20 --port P ... (the flags choose the recording)

Standard library only, Python 3.9; this file, the folder recordings/ and conditions.{py,yaml} can be copied to any host
and be an ExecStart. What the operator gave (port, model path, flags) replaces what the recorded run was given, where
that run repeats its arguments: server_args=, uvicorn's address, argparse's and the missing model's errors,
/server_info, /model_info, /v1/models. Nothing else is changed, and every figure is the recording's. With
TQDM_BAR_FORMAT in the environment the healthy run is the one that was recorded with it.
"""

from __future__ import annotations

import argparse
import errno
import importlib.util
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
READY = b"The server is fired up and ready to roll!"
RUNNING = b"Uvicorn running on"
HUNG_SECONDS = 20.0
"""SGLang's own limit for a health request (SGLANG_HEALTH_CHECK_TIMEOUT)."""
TOKENS_A_LINE = 40
"""--decode-log-interval's default."""
OPEN_PATHS = ("/health", "/ready", "/metrics")


def beside(name: str) -> Any:
    """A module of this folder, found by its place: the folder may have been copied away from its package."""
    spec = importlib.util.spec_from_file_location("_beside_" + name.replace("/", "_")[:-3], HERE / name)
    if spec is None or spec.loader is None:
        raise ImportError(f"{HERE / name} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


recordings = beside("recordings/__init__.py")
substitute = beside("recordings/substitute.py")


class Replay:
    """One run: its log, its clock, and what its HTTP server knows."""

    def __init__(self, recording: Any, flags: Mapping[str, Any], speed: float, freeze: bool) -> None:
        self.recording, self.speed = recording, speed
        self.sub = substitute.Substitution(recording, flags)
        self.key = flags.get("api-key") if isinstance(flags.get("api-key"), str) else None
        self.began = time.monotonic()
        self.up = False
        self.served = 0
        self.stop = threading.Event()
        self.idle = threading.Condition()
        self.busy = 0
        self._lock = threading.Lock()
        texts = [line for _, line in recording.lines]
        self.side = {  # what the recorded server logged of its own accord when it was asked this
            path: [t for t in texts if f"Endpoint '{path}' is deprecated".encode() in t][:1]
            for path in ("/get_server_info", "/get_model_info", "/get_load")
        }
        asgi = next((i for i, t in enumerate(texts) if b"Exception in ASGI application" in t), None)
        if asgi is not None:
            end = next(i for i in range(asgi + 2, len(texts)) if not texts[i].startswith(b" "))
            self.side["/v1/loads"] = texts[asgi : end + 1]
        ready = next((i for i, t in enumerate(texts) if READY in t), len(texts))
        self.prefill = [t for t in texts[ready:] if b"Prefill batch" in t]
        self.decode = [t for t in texts[ready:] if b"Decode batch" in t]
        self.unhealthy = [(at, t) for at, t in recording.lines if b"Health check failed" in t]
        frozen_at = self.unhealthy[0][0] - HUNG_SECONDS if self.unhealthy and freeze else None
        self._frozen_at = frozen_at

    @property
    def frozen(self) -> bool:
        """Whether the scheduler hangs by now."""
        return self._frozen_at is not None and (time.monotonic() - self.began) * self.speed >= self._frozen_at

    def write(self, raw: bytes) -> None:
        """Bytes to the log, whole."""
        with self._lock:
            view = memoryview(raw)
            while view:
                view = view[os.write(1, view) :]

    def line(self, raw: bytes) -> None:
        """A recorded line, with this run's arguments."""
        self.write(self.sub.line(raw))

    def access(self, client: Sequence[Any], method: str, path: str, status: int, phrase: str) -> None:
        """A request as uvicorn logs it."""
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        text = f'[{now}] INFO:     {client[0]}:{client[1]} - "{method} {path} HTTP/1.1" {status} {phrase}\n'
        self.write(text.encode("utf-8", "backslashreplace"))

    def until(self, recorded: float) -> None:
        """Sleeps until that second of the recording."""
        self.stop.wait(max(0.0, self.began + recorded / self.speed - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Sleeps that many recorded seconds."""
        time.sleep(max(0.0, seconds) / self.speed)

    def answer(self, path: str) -> tuple[int, Any, float] | None:
        """The recorded (status, body, seconds); after a generated token the answer that was recorded after one."""
        responses = self.recording.responses
        after = {"/server_info": "/get_server_info after"}.get(path, f"{path} after")
        found = responses.get(after) if self.served and after in responses else responses.get(path)
        if not path.startswith("/") or not isinstance(found, list) or found[0] is None:
            return None
        return found[0], self.sub.body(path, found[1]), found[2]

    def generate(self, request: Mapping[str, Any]) -> tuple[int, Any]:
        """Recorded output ids, as many as were asked for, in the recorded time a token."""
        ids = request.get("input_ids")
        if not isinstance(ids, list):
            text = "The engine initialized with skip_tokenizer_init=True cannot accept text prompts."
            return 400, {"error": {"message": f"{text} Please provide input_ids."}}
        params = request.get("sampling_params")
        wanted = params.get("max_new_tokens", 128) if isinstance(params, dict) else 128
        count = max(1, min(int(wanted), 4096)) if isinstance(wanted, int) else 128
        recorded = self.recording.responses["/generate"][1]
        a_token = self.recording.responses["gen3_s"] / (3 * 128)
        if self.prefill:
            self.line(self.prefill[self.served % len(self.prefill)])
        for done in range(0, count, TOKENS_A_LINE):
            self.pause(min(TOKENS_A_LINE, count - done) * a_token)
            if count - done >= TOKENS_A_LINE and self.decode:
                self.line(self.decode[(self.served + done // TOKENS_A_LINE) % len(self.decode)])
        tokens = [recorded["output_ids"][i % len(recorded["output_ids"])] for i in range(count)]
        meta = {**recorded["meta_info"], "prompt_tokens": len(ids), "completion_tokens": count}
        meta["finish_reason"] = {"type": "length", "length": count}
        self.served += 1
        return 200, {**recorded, "output_ids": tokens, "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    """The recorded server's endpoints."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "uvicorn", ""
    replay: Replay

    def log_message(self, format: str, *args: Any) -> None:
        """uvicorn's lines are written by `reply`."""

    def do_GET(self) -> None:
        """Every recorded endpoint; the rest is 404."""
        self._count(self._get)

    def do_POST(self) -> None:
        """/generate; the rest is 404."""
        self._count(self._post)

    def _count(self, work: Any) -> None:
        replay = self.replay
        with replay.idle:
            replay.busy += 1
        try:
            self.url = self.path.partition("?")[0]
            key = f"Bearer {replay.key}"
            if replay.key and not self.url.startswith(OPEN_PATHS) and self.headers.get("Authorization") != key:
                self.reply(401, {"error": "Unauthorized"})
            else:
                work()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with replay.idle:
                replay.busy -= 1
                replay.idle.notify_all()

    def _get(self) -> None:
        replay = self.replay
        for raw in replay.side.get(self.url, [])[:1] if self.url != "/v1/loads" else []:
            replay.line(raw)
        if self.url in ("/health", "/health_generate"):
            if not replay.up:
                return self.reply(503, "")
            if replay.frozen:
                replay.pause(HUNG_SECONDS)
                replay.line(replay.unhealthy[0][1])
                return self.reply(503, "")
        elif replay.frozen and self.url.endswith("server_info"):
            return self._hang()
        answer = replay.answer(self.url)
        if answer is None or self.url == "/generate":
            return self.reply(404, {"detail": "Not Found"})
        status, body, seconds = answer
        replay.pause(seconds)
        self.reply(status, body)
        if self.url == "/v1/loads":
            for raw in replay.side.get(self.url, []):
                replay.line(raw)
        return None

    def _post(self) -> None:
        length = self.headers.get("Content-Length", "0")
        raw = self.rfile.read(int(length) if length.isdigit() else 0)
        if self.url != "/generate" or "/generate" not in self.replay.recording.responses:
            return self.reply(404, {"detail": "Not Found"})
        if self.replay.frozen:
            return self._hang()
        try:
            request = json.loads(raw)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            return self.reply(422, {"detail": "not a JSON object"})
        return self.reply(*self.replay.generate(request))

    def _hang(self) -> None:
        """No answer: until the client leaves or the server is stopped."""
        self.connection.settimeout(0.2)
        while not self.replay.stop.is_set():
            try:
                if not self.connection.recv(1, socket.MSG_PEEK):
                    break
                time.sleep(0.2)
            except OSError as error:
                if not isinstance(error, TimeoutError) and error.errno is not None:
                    break
        self.close_connection = True

    def reply(self, status: int, body: Any) -> None:
        """The answer and its access line."""
        text = body if isinstance(body, str) else json.dumps(body)
        data = text.encode()
        self.send_response_only(status)
        kind = "application/json" if data[:1] in (b"{", b"[") else "text/plain; charset=utf-8"
        for name, value in (("server", "uvicorn"), ("content-type", kind), ("content-length", str(len(data)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
        self.replay.access(self.client_address, self.command, self.path, status, self.responses[status][0])


class Server(ThreadingHTTPServer):
    """Bound at the recorded moment and not before."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Without the base's look-up of the host's full name, which may ask a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""


def stop_on_sigterm(replay: Replay) -> None:
    """From now on SIGTERM drains. A thread waits for it: a handler would run inside the main thread, and where that
    holds the event's own lock at that moment, set() would wait for itself for ever."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        replay.stop.set()

    threading.Thread(target=wait, daemon=True).start()


def die(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """As SGLang ends after a signal: SIGKILL to its own tree and itself."""
    for child in children:
        child.kill()
    os.kill(os.getpid(), signal.SIGKILL)


def last_words(replay: Replay, lines: Sequence[tuple[float, bytes]]) -> None:
    """Waits for SIGTERM, drains, writes the recorded lines of a stop at their distances."""
    replay.stop.wait()
    for i, (at, raw) in enumerate(lines):
        if i:
            replay.pause(at - lines[i - 1][0])
        replay.line(raw)
        if b"Draining requests" in raw:
            with replay.idle:
                replay.idle.wait_for(lambda: not replay.busy or replay.frozen)


def play(replay: Replay, children: Sequence[subprocess.Popen[bytes]]) -> int:
    """The recorded lines at their times; returns the exit code of a run that ended by itself."""
    lines = replay.recording.lines
    stop_at = next((i for i, (_, t) in enumerate(lines) if b"SIGTERM received" in t), len(lines))
    for i, (at, raw) in enumerate(lines):
        # the recorder's own polls are not part of the run: whoever asks here gets lines of his own
        if b'"GET /health HTTP/1.1"' in raw:
            continue
        replay.until(at)
        if replay.stop.is_set():
            break
        if RUNNING in raw or b"[Errno 98]" in raw:
            stop_on_sigterm(replay)
        if RUNNING in raw:
            Handler.replay = replay
            try:
                server = Server(replay.sub.host, replay.sub.port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                never = recordings.load("port-in-use-never-exits").lines
                first = next(k for k, (_, t) in enumerate(never) if b"[Errno 98]" in t)
                for _, line in never[first : first + 2]:
                    replay.line(line)
                last_words(replay, never[first + 2 :])
                die(children)
                return 0
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        if READY in raw:
            replay.up = True
            replay.line(raw)
            break
        replay.line(raw)
        if b"Waiting for application shutdown" in raw and replay.recording.rc is None:
            stop_at = i + 1
            break
    else:
        return int(replay.recording.rc or 0)
    last_words(replay, lines[stop_at:])
    die(children)
    return 0


def main(argv: Sequence[str]) -> int:
    """Runs one recording to its end."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--recording")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--conditions")
    parser.add_argument("--host-name", default="")
    parser.add_argument("--engine", default="sglang")
    parser.add_argument("--no-freeze", action="store_true")
    parser.add_argument("--children", type=int, default=0)
    own, rest = parser.parse_known_args(argv)
    flags = substitute.flags_of(rest)
    name, freeze, unknown = own.recording, not own.no_freeze, []
    if own.conditions:
        conditions = beside("conditions.py")
        choice = conditions.choose(
            Path(own.conditions).read_text("utf-8"), own.host_name, own.engine, flags, os.environ
        )
        name, freeze, unknown = own.recording or choice.recording, freeze and choice.freeze, list(choice.unknown)
    if not name or own.speed <= 0:
        sys.stderr.write("replayer: give --recording NAME or --conditions FILE, and a speed above 0\n")
        return 2
    if name == "dflash-healthy" and os.environ.get("TQDM_BAR_FORMAT"):
        name = "dflash-healthy-bars"
    replay = Replay(recordings.load(name), flags, own.speed, freeze)
    replay.sub.unknown = unknown
    # a child that reads its standard input ends with this process, however that ends
    wait = [sys.executable, "-c", "import sys; sys.stdin.read()", "sglang::scheduler"]
    children = [subprocess.Popen(wait, stdin=subprocess.PIPE) for _ in range(own.children)]
    code = play(replay, children)
    if code < 0:
        die(children)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
