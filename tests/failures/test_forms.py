"""The same failure in other clothes: prefixes on every line, two ranks at once, newest first, cut, coloured."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.domain.findings.conftest import builtin
from tests.failures.score import found
from tests.failures.wordings import log, wordings

HEAD = re.compile(r"(Jan \d\d [\d:]{8} gpu-host )(\S+?): (.*)$", re.S)
RESTART = "Jan 10 03:00:59 gpu-host systemd[1]: llm.service: Scheduled restart job, restart counter is at 1."
SAMPLE = list(wordings())[::3]


def parts(rows: list[str]) -> list[tuple[str, str, str]]:
    return [(m.group(1), m.group(2), m.group(3)) for m in map(HEAD.match, rows) if m is not None]


def prefixed(prefix: str) -> Callable[[list[str]], list[str]]:
    def form(rows: list[str]) -> list[str]:
        return [
            f"{head}{who}: {prefix if who.startswith('python3') and not text.startswith('[20') else ''}{text}"
            for head, who, text in parts(rows)
        ]

    return form


def middle(rows: list[str]) -> list[str]:
    return [row for row in rows if "server_args" not in row and "Traceback" not in row]


def two(pid: str) -> Callable[[list[str]], list[str]]:
    def form(rows: list[str]) -> list[str]:
        out: list[str] = []
        for head, who, text in parts(rows):
            out.append(f"{head}{who}: {text}")
            if who.startswith("python3"):
                out.append(f"{head}python3[{pid}]: {text.replace('TP1', 'TP0')}")
        return out

    return form


FORMS: dict[str, Callable[[list[str]], list[str]]] = {
    "a level on every line": prefixed("[2026-01-01 10:00:00] ERROR: "),
    "a worker on every line": prefixed("(EngineCore pid=7) (Worker_TP1 pid=2001) ERROR 04-06 14:51:04 [core.py:7] "),
    "a rank on every line": prefixed("[rank1]: "),
    "no journal": lambda rows: [text for _, _, text in parts(rows)],
    "seconds since the start": lambda rows: [f"{9 + n * 0.25:8.3f} {x}" for n, (_, _, x) in enumerate(parts(rows))],
    "newest first": lambda rows: rows[::-1],
    "from the middle": middle,
    "two processes": two("4001"),
    "two ranks in one stream": two("4000"),
    "three restarts": lambda rows: [*rows, RESTART, *rows, RESTART, *rows],
    "carriage returns": lambda rows: [f"{row}\r" for row in rows],
    "colours": lambda rows: [row.replace("[20", "\x1b[31m[20") + "\x1b[0m" for row in rows],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_log_changes_no_diagnosis(form: str) -> None:
    wrong = []
    for slug, row in SAMPLE:
        first = found(FORMS[form](log(row)), builtin())
        if not first or first[0].slug != slug:
            wrong.append((slug, row))
    assert wrong == []
