"""A host of our own under one temporary root: shims first in PATH, host code as real processes."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import ddtree_console
from ddtree_console.hostside.roots import Roots

CONSOLE = Path(ddtree_console.__file__).parents[1]
PATIENCE = 10.0


class FakeHost:
    """Roots under `folder`; `shim` puts a program first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.env = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "PYTHONPATH": str(CONSOLE)}
        self.roots_file = folder / "roots.json"
        keys = {name: str(folder / name) for name in ("etc", "run", "var", "opt", "cgroup")}
        self.roots_file.write_text(json.dumps({**keys, "nvml": False}))
        self.roots = Roots(**keys, nvml=False, path=str(self.roots_file))

    def shim(self, name: str, script: str) -> Path:
        """A program in front of the real one; Python unless it names its interpreter."""
        path = self.bin / name
        path.write_text(script if script.startswith("#!") else f"#!{sys.executable}\n{script}")
        path.chmod(0o755)
        return path

    def units(self, **units: Mapping[str, Any]) -> None:
        """What the systemctl shim shows: unit name without .service -> properties."""
        state = self.folder / "units.json"
        spare = state.with_suffix(".new")
        spare.write_text(json.dumps({f"{name}.service": dict(props) for name, props in units.items()}))
        spare.replace(state)
        if (self.bin / "systemctl").exists():
            return
        self.shim(
            "systemctl",
            f"""import json, sys
if "--version" in sys.argv:
    print("systemd 252 (252.1)")
    sys.exit()
units = json.load(open({str(state)!r}))
absent = {{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead"}}
shown = [dict(units.get(name, absent), Id=name)
         for name in sys.argv if name.endswith(".service")]
print("\\n\\n".join("\\n".join(f"{{k}}={{v}}" for k, v in unit.items()) for unit in shown))
""",
        )

    def cgroup(self, group: str, *pids: int) -> None:
        """A cgroup that holds those processes."""
        folder = self.folder / "cgroup" / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        (folder / "cpu.stat").write_text("usage_usec 1234567\nuser_usec 1\n")

    def argv(self, command: str, python: str = sys.executable) -> list[str]:
        """A host command's command line, from the source tree."""
        return [python, "-B", "-m", "ddtree_console.hostside", f"--roots={self.roots_file}", command]

    def run(self, command: str, question: Any = None, python: str = sys.executable) -> list[dict[str, Any]]:
        """A short command's answer lines."""
        stdin = b"" if question is None else json.dumps(question).encode() + b"\n"
        done = subprocess.run(
            self.argv(command, python), input=stdin, env=self.env, capture_output=True, timeout=30, check=False
        )
        assert done.stderr == b"", done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, command: str) -> Running:
        """A long-lived command."""
        return Running(self.argv(command), self.env)


class Running:
    """A long-lived command, its output read by a thread so that every wait has an end."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(argv, env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def send(self, value: Any) -> None:
        """One JSON line to stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        self.process.stdin.flush()

    def line(self, timeout: float = PATIENCE) -> bytes | None:
        """The next line, None at the end; TimeoutError."""
        try:
            return self._lines.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no line came") from None

    def until(self, wanted: Callable[[dict[str, Any]], Any], timeout: float = PATIENCE) -> dict[str, Any]:
        """The first message of which `wanted` holds; AssertionError shows what came instead."""
        end, seen = time.monotonic() + timeout, []
        while time.monotonic() < end:
            try:
                line = self.line(end - time.monotonic())
            except (TimeoutError, ValueError):
                break
            if line is None:
                break
            message: dict[str, Any] = json.loads(line)
            if wanted(message):
                return message
            seen.append(message)
        raise AssertionError(f"it did not come; came: {seen}")

    def kind(self, kind: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """The next message of a kind."""
        return self.until(lambda message: message.get("kind") == kind, timeout)

    def close_stdin(self) -> None:
        """What a console that goes away does."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def ended(self, timeout: float = PATIENCE) -> int:
        """Its exit status."""
        return self.process.wait(timeout)


def waiting_child(*words: str) -> subprocess.Popen[bytes]:
    """A process with those words on its command line that waits for its stdin; it is up when this returns."""
    code = "print(1, flush=True); input()"
    argv = [sys.executable, "-c", code, *words]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, timeout: float = PATIENCE) -> bool:
    """Waits until it does not."""
    end = time.monotonic() + timeout
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)
