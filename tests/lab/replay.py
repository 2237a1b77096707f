"""The replayer on a lab host: a unit's process that does what a recorded SGLang did."""

from __future__ import annotations

from pathlib import Path

from ddtree_console.demo import recordings
from tests.lab.host import Host

DEMO = Path(recordings.__file__).resolve().parents[1]
FOLDER = "/opt/lab/replay"
FILES = ("replayer.py", "conditions.py", "conditions.yaml")


def give_replayer(host: Host) -> None:
    """Copies the replayer and every recording (166 kB) to the host."""
    for name in FILES:
        host.write(f"{FOLDER}/{name}", (DEMO / name).read_bytes())
    for file in (DEMO / "recordings").glob("*.*"):
        if file.suffix in (".py", ".xz"):
            host.write(f"{FOLDER}/recordings/{file.name}", file.read_bytes())


def replay_command(recording: str, port: int, model: str, speed: float, *more: str) -> str:
    """An ExecStart that replays it `speed` times faster, bound to loopback. more: further flags of the server."""
    words = ("--recording", recording, "--speed", f"{speed:g}", "--host", "127.0.0.1", "--port", str(port))
    return " ".join(("/usr/bin/python3", "-B", f"{FOLDER}/replayer.py", *words, "--model-path", model, *more))
