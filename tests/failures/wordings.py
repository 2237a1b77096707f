"""Other wordings of the same causes, put into the place where each is printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

WORDINGS = Path(__file__).parent / "wordings.yaml"
_STAMP = "[2026-01-01 10:00:{:02d}{}] "
_HEAD = "Jan 10 03:00:{:02d} gpu-host {}: "


def _frames(text: str) -> list[str]:
    if text.startswith("assert"):
        return ['  File "/opt/llm/sglang/srt/models/m.py", line 7, in __init__', f"    {text}"]
    path, _, name = text.partition(" in ")
    return [f'  File "/opt/llm/sglang/srt/{path}", line 7, in {name}', "    return self.run()"]


def log(row: str) -> list[str]:
    """The journal lines of a wording."""
    place, text = row[0], row[3:]
    frames, arrow, rest = text.partition(" <- ")
    lines = (rest if arrow else text).split(" | ")
    program, manager = "python3[4000]", "systemd[1]"
    out = [(program, _STAMP.format(0, "") + "server_args=ServerArgs(model_path='/models/m', tp_size=2, port=30000)")]
    if place == "x":
        out.append(
            (program, _STAMP.format(5, " TP1") + "Scheduler hit an exception: Traceback (most recent call last):")
        )
        out.append((program, '  File "/opt/llm/sglang/srt/managers/scheduler.py", line 9, in run_scheduler_process'))
        out.extend((program, x) for x in (_frames(frames) if arrow else ["    scheduler = Scheduler("]))
        out.extend((program, x) for x in [*lines, ""])
        out.append(
            (
                program,
                _STAMP.format(6, "") + "Received sigquit from a child process. It usually means the child failed.",
            )
        )
    elif place == "m":
        out.append((program, "Traceback (most recent call last):"))
        out.append((program, '  File "<frozen runpy>", line 198, in _run_module_as_main'))
        out.extend((program, x) for x in (_frames(frames) if arrow else []))
        out.extend((program, x) for x in lines)
    elif place == "k":
        out.extend(("kernel", x) for x in lines)
    elif place == "s":
        out.extend((manager, x) for x in lines)
    else:
        out.extend((program, x) for x in lines)
    status = "killed, status=9/KILL" if place in "xk" else "exited, status=1/FAILURE"
    if place != "s":
        out.append((manager, f"llm.service: Main process exited, code={status}"))
    return [_HEAD.format(i % 60, ident) + text for i, (ident, text) in enumerate(out)]


def wordings() -> Iterator[tuple[str, str]]:
    """(slug, row) of all."""
    for slug, rows in yaml.safe_load(WORDINGS.read_text("utf-8")).items():
        for row in rows:
            yield slug, row
