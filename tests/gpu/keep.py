"""What a run leaves: result.json, report.txt and one archive of logs and recordings, written again after every step."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_LOG = 4 << 20
"""bytes of one log in the archive; of a longer one its two halves' ends."""


def report(results: Mapping[str, Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    """For a reader: each step with its verdict, then what matters of it."""
    lines = list(notes)
    for name, row in results.items():
        verdict = "ok  " if row.get("ok") else "FAIL"
        lines.append(f"{verdict} {name}  {row.get('seconds', '?')} s")
        for key, value in row.items():
            if key in ("ok", "seconds", "cells"):
                continue
            if key == "table":
                lines += [f"    {line}" for line in value]
            elif isinstance(value, Mapping) and value and key != "section":
                lines.append(f"    {key}:")
                lines += [f"      {k}: {_short(v)}" for k, v in value.items()]
            else:
                lines.append(f"    {key}: {_short(value)}")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 1500 else f"{text[:1000]} ... {text[-480:]}"


def save(
    out: Path, where: Path, results: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], notes: Sequence[str]
) -> None:
    """Writes all three. where: the folder of logs and recordings. names: paths of this host -> what stands for them."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "result.json").write_text(json.dumps(results, indent=1, default=str))
    (out / "report.txt").write_text(report(results, notes))
    part = out / "plugin.tar.gz.part"
    with tarfile.open(part, "w:gz", compresslevel=4) as archive:
        for path in sorted([*where.glob("*.log"), *where.glob("*.json")]):
            data = path.read_bytes()
            for real, stands in sorted(names.items(), key=lambda item: -len(item[0])):
                data = data.replace(real.encode(), stands.encode())
            if len(data) > MOST_LOG:
                data = data[: MOST_LOG // 2] + b"\n[cut]\n" + data[-MOST_LOG // 2 :]
            entry = tarfile.TarInfo(f"recordings/{path.name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    part.replace(out / "plugin.tar.gz")
