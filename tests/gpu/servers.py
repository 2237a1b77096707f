"""SGLang servers of a GPU run: launched, asked, kept as recordings (NAME.log with seconds, NAME.json). Stdlib only."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SGLANG = (sys.executable, "-u", "-m", "sglang.launch_server")
KEPT = ("/health", "/server_info", "/model_info", "/v1/models", "/metrics")
"""endpoints whose last answers a recording holds."""


class Ended(Exception):
    """A server ended, did not become ready or did not answer; the text holds its last lines."""


def ask(port: int, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> tuple[int | None, str]:
    """(status, text); status None with the error where there is no answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return None, repr(error)[:200]


def parsed(text: str) -> Any:
    """JSON where it is some, the text otherwise."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class Server:
    """One SGLang on a port. argv: all after the launcher. env: beside this process's own."""

    def __init__(
        self,
        name: str,
        out: Path,
        port: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        launcher: Sequence[str] = SGLANG,
    ) -> None:
        self.name, self.out, self.port = name, out, port
        self.record: dict[str, Any] = {
            "name": name,
            "args": list(argv),
            "env": dict(env),
            "ready": None,
            "rc": None,
            "poll": [],
        }
        out.mkdir(parents=True, exist_ok=True)
        self._log = (out / f"{name}.log").open("wb")
        self._lock = threading.Lock()
        self._asked: list[int] = []
        self._began = time.monotonic()
        self._stopped = False
        self._process = subprocess.Popen(
            [*launcher, *argv, "--host", "127.0.0.1", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )
        self._pump = threading.Thread(target=self._copy, daemon=True)
        self._pump.start()

    def _copy(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.write(b"%8.3f " % (time.monotonic() - self._began) + line)
            self._log.flush()

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self.out / f"{self.name}.log").read_text("utf-8", "replace")

    def tail(self, lines: int = 12) -> str:
        """Its last lines, each cut at 300 characters."""
        return "\n".join(line[:300] for line in self.log.splitlines()[-lines:])

    @property
    def is_ready(self) -> bool:
        """It has answered healthy once, and runs."""
        return self.record["ready"] is not None and self.ended() is None

    def ended(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def ready(self, seconds: float) -> None:
        """Waits until it generates; Ended with its last lines otherwise."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.ended() is None:
            status, text = ask(self.port, "/health", timeout=3)
            now = round(time.monotonic() - self._began, 2)
            if not self.record["poll"] or self.record["poll"][-1][2:] != [status, text[:120]]:
                self.record["poll"].append([now, "/health", status, text[:120]])
            if status == 200:
                self.record["ready"] = now
                return
            time.sleep(0.5)
        self.record["rc"] = self.ended()
        raise Ended(f"{self.name} did not become ready (exit {self.ended()}):\n{self.tail()}")

    def post(self, body: Mapping[str, Any], timeout: float = 120.0) -> Any:
        """The JSON answer of /generate; Ended where there is none."""
        status, text = ask(self.port, "/generate", body, timeout)
        if status != 200:
            raise Ended(f"{self.name}: /generate answered {status}: {text[:300]}")
        return json.loads(text)

    def generate(self, ids: Sequence[int], **sampling: Any) -> dict[str, Any]:
        """One /generate answer; Ended where it is none. Keys with a leading underscore go beside sampling_params, but
        for `_timeout`, the seconds to wait."""
        timeout = sampling.pop("_timeout", 120.0)
        beside = {k[1:]: sampling.pop(k) for k in list(sampling) if k.startswith("_")}
        greedy = {"temperature": 0, "ignore_eos": True, **sampling}
        self._asked = list(ids)
        return dict(self.post({"input_ids": list(ids), "sampling_params": greedy, **beside}, timeout))

    def section(self) -> dict[str, Any]:
        """The `ddtree` section of its server info, {} without."""
        status, text = ask(self.port, "/server_info", timeout=10)
        states = dict(parsed(text)).get("internal_states") if status == 200 else None
        return dict((states or [{}])[0].get("ddtree") or {})

    def keep(self) -> None:
        """Its answers, for the recording."""
        answers: dict[str, Any] = {}
        until = time.monotonic() + 5.0
        for path in KEPT if self.is_ready else ():
            began = time.monotonic()
            status, text = ask(self.port, path, timeout=max(0.1, until - began))
            answers[path] = [status, parsed(text), round(time.monotonic() - began, 4)]
        if self.is_ready and self._asked:
            with contextlib.suppress(Ended):
                answers.update(self._tokens(until))
        if answers:
            self.record["responses"] = answers

    def _tokens(self, until: float) -> dict[str, Any]:
        """Of the prompt that it was asked last: an answer of 128 tokens, and the seconds of three such; Ended where
        they take longer than until `until`."""
        answers: dict[str, Any] = {}
        began = time.monotonic()
        for _ in range(3):
            each = time.monotonic()
            body = self.generate(self._asked, max_new_tokens=128, _timeout=max(0.1, until - each))
            answers["/generate"] = [200, body, round(time.monotonic() - each, 4)]
        return {**answers, "gen3_s": round(time.monotonic() - began, 4)}

    def signal(self, how: int) -> None:
        """To all its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)

    def stop(self, patience: float = 4.0) -> None:
        """Keeps its last answers, ends it with all its children, writes the recording; only the first call does."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            if self.ended() is None and patience:
                self.keep()
                self.signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(patience)
            self.signal(signal.SIGKILL)
            self._process.wait()
            self._pump.join(5)
            self._log.close()
            self.record["exit_code"] = self._process.returncode
            (self.out / f"{self.name}.json").write_text(json.dumps(self.record, indent=1))
