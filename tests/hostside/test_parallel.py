"""Work beside each other: what hangs, breaks or is killed loses only itself."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ddtree_console.hostside import parallel


def good() -> Iterator[Mapping[str, Any]]:
    yield {"n": 1}
    yield {"n": os.getpid()}


def broken() -> Iterator[Mapping[str, Any]]:
    yield {"n": 1}
    raise ValueError("no such thing")


def killed() -> Iterator[Mapping[str, Any]]:
    yield {"n": 1}
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_tells_what_it_can(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def hangs() -> Iterator[Mapping[str, Any]]:
        yield {"n": 1}
        mark.write_text(str(os.getpid()))
        threading.Event().wait()

    began = time.monotonic()
    found: dict[str, list[dict[str, Any]]] = {}
    jobs = {"good": good, "broken": broken, "killed": killed, "hangs": hangs}
    for name, item in parallel.run(jobs, 1.0):
        found.setdefault(name, []).append(item)
    assert time.monotonic() - began < 5
    assert found["good"][0] == {"n": 1}
    assert found["good"][1]["n"] != os.getpid()
    assert found["broken"] == [{"n": 1}, {"problem": "ValueError: no such thing"}, {"end": True}]
    assert found["killed"] == [{"n": 1}, {"end": True}]
    assert found["hangs"] == [{"n": 1}, {"problem": "no answer within 1 s"}, {"end": True}]
    assert not Path("/proc", mark.read_text()).exists()


def test_what_is_known_is_told_before_the_rest() -> None:
    def slow() -> Iterator[Mapping[str, Any]]:
        threading.Event().wait(30)
        yield {"n": 2}

    told = parallel.run({"slow": slow, "good": good}, 20.0)
    assert next(told) == ("good", {"n": 1})
    told.close()  # type: ignore[attr-defined]


def test_many_at_once_and_large_answers() -> None:
    def large() -> Iterator[Mapping[str, Any]]:
        for n in range(40):
            yield {"n": n, "text": "x" * 20_000}

    rows = [item for name, item in parallel.run({f"{i}": large for i in range(4)}, 20.0) if "n" in item]
    assert len(rows) == 160
    assert sum(len(row["text"]) for row in rows) == 160 * 20_000
