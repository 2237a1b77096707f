"""What no linter checks: host code parses and imports under Python 3.9, and no file outgrows one job.

python -m tests.check_tree      prints each problem; exit status 1 when there is one
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSOLE = ROOT / "console"
HOST_CODE = ("domain", "hostside")
MOST_LINES = 400
NOT_COUNTED = ("kernels/", "uv.lock", "LICENSE")

IMPORT_ALL = """
import importlib, sys
sys.path[:0] = sys.argv[1:3]
for name in sys.argv[3:]:
    importlib.import_module(name)
print("imported", len(sys.argv) - 3, "modules under", sys.version.split()[0])
"""


def host_files() -> list[Path]:
    """Every module that runs on a host."""
    package = CONSOLE / "ddtree_console"
    return [package / "__init__.py", *(file for part in HOST_CODE for file in sorted((package / part).rglob("*.py")))]


def not_39() -> Iterator[str]:
    """Syntax that 3.9 does not have."""
    for file in host_files():
        try:
            ast.parse(file.read_text("utf-8"), str(file), feature_version=(3, 9))
        except SyntaxError as error:
            yield f"{file.relative_to(ROOT)}:{error.lineno}: not Python 3.9: {error.msg}"


def python39() -> str | None:
    """A real 3.9 on this machine: in PATH, or among pyenv's."""
    candidates = [shutil.which("python3.9"), *map(str, Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.startswith("Python 3.9"):  # a pyenv shim may stand for nothing
            return candidate
    return None


def import_under_39() -> Iterator[str]:
    """Imports all host code with a real 3.9, beside the one pynvml.py that travels with it."""
    python = python39()
    pynvml = importlib.util.find_spec("pynvml")
    if python is None or pynvml is None or pynvml.origin is None:
        print("no python3.9 here: not imported under it")
        return
    modules = [
        ".".join(file.relative_to(CONSOLE).with_suffix("").parts).removesuffix(".__init__")
        for file in host_files()
        if file.name != "__main__.py"
    ]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(pynvml.origin, folder)
        argv = [python, "-I", "-B", "-c", IMPORT_ALL, str(CONSOLE), folder, *modules]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"{python}: {done.stderr.strip()}"
    else:
        print(done.stdout.strip())


def too_long() -> Iterator[str]:
    """Text files of the repository above the limit."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        file = ROOT / name
        if name.startswith(NOT_COUNTED) or file.suffix not in {".py", ".sh", ".c", ".md", ".tcss", ".toml", ".yaml"}:
            continue
        lines = file.read_text("utf-8").count("\n") if file.is_file() else 0
        if lines > MOST_LINES:
            yield f"{name}: {lines} lines, the limit is {MOST_LINES}"


def main() -> int:
    """Exit status."""
    problems = [*not_39(), *import_under_39(), *too_long()]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
