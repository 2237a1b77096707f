"""The host code's archive: the same files give the same hash, and a Python 3.9 can read them all."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from ddtree_console.transport import archive


def test_the_same_files_give_the_same_hash_in_another_process() -> None:
    code = "from ddtree_console.transport import archive; print(archive.build().hash)"
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    built = archive.build()
    assert other.stdout.strip() == built.hash
    assert len(built.hash) == 16
    assert int(built.hash, 16)


def test_a_changed_rule_is_another_hash() -> None:
    assert archive.build([{"id": "x"}]).hash != archive.build().hash
    assert json.loads(archive.build([{"id": "x"}]).files["rules.json"]) == [{"id": "x"}]


def test_what_it_holds() -> None:
    built = archive.build()
    with tarfile.open(fileobj=io.BytesIO(built.data)) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert names == sorted(built.files) == list(built.files)
    assert {(m.mtime, m.mode, m.uid, m.gid, m.uname) for m in members} == {(archive.FIXED_TIME, 0o644, 0, 0, "")}
    for name in ("__main__.py", "pynvml.py", "pynvml.LICENSE", "rules.json", "ddtree_console/hostside/watch.py"):
        assert name in names
    assert b"Redistribution and use" in built.files["pynvml.LICENSE"]
    folders = {Path(name).parts[1] for name in names if name.startswith("ddtree_console/")}
    assert folders == {"__init__.py", "domain", "hostside"}


def test_python_39_parses_every_file() -> None:
    for name, data in archive.build().files.items():
        if name.endswith(".py"):
            ast.parse(data, name, feature_version=(3, 9))
