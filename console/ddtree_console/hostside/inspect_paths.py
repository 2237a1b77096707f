"""Where the unit's interpreter would find a package: asked of the interpreter itself, else worked out from its files.

Asking runs the interpreter with the unit's Environment as the unit's user and finds the package's spec; the package
itself is not imported. As root only an interpreter that nobody else can change is run.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddtree_console.hostside import child

SECONDS = 8.0
LOOSE = 0o022
# `python -m` puts the working directory first, `-c` an empty one: so it is said instead of used. Nothing is imported
# before the working directory is off the path.
PROBE = """
import sys
sys.path[:] = [p for p in sys.path if p]
import json
from importlib import util
workdir, names = sys.argv[1], sys.argv[2:]
if workdir and not getattr(sys.flags, "safe_path", False):
    sys.path.insert(0, workdir)
found = {}
for name in names:
    try:
        spec = util.find_spec(name)
    except Exception:
        spec = None
    if spec is not None:
        found[name] = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
print("\\n@@" + json.dumps({"path": sys.path, "prefix": sys.prefix, "version": "%d.%d.%d" % sys.version_info[:3],
    "found": found}))
"""


@dataclass(frozen=True)
class Interpreter:
    """path: its import path, in order. found: package -> folders. asked: False where it was worked out from files."""

    python: str
    version: str = ""
    prefix: str = ""
    path: tuple[str, ...] = ()
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    asked: bool = False
    problems: tuple[str, ...] = ()


def environment(given: Mapping[str, str], pythonpath: str, home: str) -> dict[str, str]:
    """What systemd would give the unit: its own Environment over a bare one, never that of this process."""
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}
    if home:
        env["HOME"] = home
    env.update({k: v for k, v in given.items() if k and "=" not in k and "\0" not in k + v})
    if pythonpath:
        env["PYTHONPATH"] = pythonpath
    # nothing may be written beside the sources, and no GPU may be touched
    env.update(PYTHONDONTWRITEBYTECODE="1", CUDA_VISIBLE_DEVICES="")
    return env


def only_roots(path: str) -> str:
    """'' where nobody but root can change that file or a folder above it, links followed; else who can.

    A folder with the sticky bit (/tmp) lets others add files but not replace root's.
    """
    end = Path(path)
    parts: set[Path] = set()
    try:
        for _ in range(20):
            parts.update((end, *end.parents))
            if not end.is_symlink():
                break
            end = Path(os.path.normpath(end.parent / end.readlink()))
        real = end.resolve(strict=True)
        for part in sorted({*parts, real, *real.parents}):
            about = part.stat()
            sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
            if about.st_uid != 0 or (about.st_mode & LOOSE and not sticky):
                return f"{part} can be changed by others than root"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def fit_for_root(python: str, env: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """(why that interpreter may not be run as root or '', the environment without libraries that others can change)."""
    clean = {k: v for k, v in env.items() if not k.startswith("LD_")}
    libraries = [p for p in env.get("LD_LIBRARY_PATH", "").split(":") if p and not only_roots(p)]
    if libraries:
        clean["LD_LIBRARY_PATH"] = ":".join(libraries)
    entries = [p for name in ("PYTHONPATH", "PYTHONHOME") for p in env.get(name, "").split(":") if p]
    sites = sorted(Path(python).parent.parent.glob("lib*/python3*/site-packages"))
    # a .pth file or sitecustomize of these runs when the interpreter starts
    started = [f for site in sites for f in (*site.glob("*.pth"), *site.glob("*customize.py"))]
    for path in (python, *(p for p in entries if Path(p).exists()), *map(str, sites), *map(str, started)):
        loose = only_roots(path)
        if loose:
            return loose, clean
    return "", clean


def ask(python: str, names: Sequence[str], env: Mapping[str, str], workdir: str) -> Interpreter:
    """The interpreter's own answer. OSError or ValueError say why there is none."""
    if os.geteuid() == 0:
        loose, env = fit_for_root(python, env)
        if loose:
            raise ValueError(f"it is not run as root: {loose}")
    argv = [python, "-c", PROBE, workdir, *names]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, env=dict(env), cwd="/", timeout=SECONDS,
            preexec_fn=child.die_with_us(),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(f"it did not answer within {SECONDS:g} s") from None
    lines = [line[2:] for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith("@@")]
    if done.returncode or not lines:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ValueError(f"it ended with status {done.returncode}: {said[-1] if said else 'no word'}")
    raw = json.loads(lines[-1])
    found = {str(k): tuple(str(p) for p in v) for k, v in raw["found"].items()}
    return Interpreter(python, raw["version"], raw["prefix"], tuple(str(p) for p in raw["path"]), found, True)


def work_out(python: str, names: Sequence[str], env: Mapping[str, str], workdir: str, why: str) -> Interpreter:
    """The import path from pyvenv.cfg, site-packages and .pth files, without running anything."""
    folders: list[str] = [p for p in (workdir, *env.get("PYTHONPATH", "").split(":")) if p]
    prefix, version = _venv(Path(python))
    sites = sorted(Path(prefix).glob("lib*/python3*/*-packages"))
    wanted = [s for s in sites if version and s.parent.name == f"python{'.'.join(version.split('.')[:2])}"] or sites
    found: dict[str, tuple[str, ...]] = {}
    for site in wanted:
        folders.append(str(site))
        for file in sorted(site.glob("*.pth")):
            more, mapped = _pth(file)
            folders += more
            found.update({k: (v,) for k, v in mapped.items() if k in names})
    for name in names:
        for folder in folders:
            if Path(folder, name).is_dir() or Path(folder, f"{name}.py").is_file():
                inside = Path(folder, name)
                found[name] = (str(inside if inside.is_dir() else inside.with_suffix(".py")),)
                break
    problem = f"the import path was worked out from files, because {python} was not asked: {why}"
    return Interpreter(python, version, prefix, tuple(dict.fromkeys(folders)), found, False, (problem,))


def _venv(python: Path) -> tuple[str, str]:
    """(prefix, version) of an interpreter from pyvenv.cfg, else from where it lies."""
    top = python.parent.parent
    config = _text(top / "pyvenv.cfg")
    if config:
        match = re.search(r"^version(?:_info)?\s*=\s*([\d.]+)", config, re.M)
        return str(top), match.group(1) if match else ""
    try:
        real = python.resolve()
    except OSError:
        real = python
    match = re.search(r"python(3\.\d+)$", real.name)
    return str(real.parent.parent), match.group(1) if match else ""


def _pth(file: Path) -> tuple[list[str], dict[str, str]]:
    """(folders, package -> folder) of one .pth file: plain lines, and the finder of an editable install."""
    folders: list[str] = []
    mapped: dict[str, str] = {}
    for line in _text(file).splitlines():
        word = line.strip()
        match = re.match(r"import\s+(__editable___\w+_finder)\b", word)
        if match:
            mapped.update(_mapping(file.with_name(f"{match.group(1)}.py")))
        elif word and not word.startswith(("#", "import ", "import\t")):
            path = file.parent / word
            if path.is_dir():
                folders.append(str(path))
    return folders, mapped


def _mapping(finder: Path) -> dict[str, str]:
    """MAPPING of setuptools' editable finder."""
    try:
        for node in ast.parse(_text(finder)).body:
            target: ast.expr | None = None
            if isinstance(node, ast.AnnAssign):
                target = node.target
            elif isinstance(node, ast.Assign):
                target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == "MAPPING":
                raw = ast.literal_eval(getattr(node, "value", None) or ast.Dict([], []))
                return {str(k): str(v) for k, v in raw.items()}
    except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def find(python: str, names: Sequence[str], env: Mapping[str, str], workdir: str) -> Interpreter:
    """Asked where that is possible, else worked out; never raises."""
    if not Path(python).is_absolute():
        return Interpreter(python, problems=(f"the interpreter {python} is no absolute path",))
    try:
        return ask(python, names, env, workdir)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        return work_out(python, names, env, workdir, why)
