"""Makes tests/builds/reference/*.json: every option of each release, as the release's own parser has them; and from
all of them the table of names in domain/engines/sglang_names.py.

    python tests/builds/make_reference.py [RELEASE ..]

Downloads the wheels (100 MB for all) and msgspec, which the releases from 0.5.20 on need to declare their fields, and
runs run_parser.py in a child for each. Our own reader takes no part in it.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from tests.builds import wheels  # noqa: E402


def msgspec(where: Path) -> Path:
    """A folder with msgspec for this interpreter. CalledProcessError where pip cannot install it."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(where), "msgspec"]
    subprocess.run(argv, check=True)
    return where


def make(release: str, more: Path) -> dict[str, Any]:
    """The reference of one release. CalledProcessError where its parser cannot be run."""
    wheel = wheels.fetch(release)
    with tempfile.TemporaryDirectory() as folder:
        wheels.unpack(wheel, Path(folder))
        argv = [sys.executable, "-s", str(HERE / "run_parser.py"), folder]
        env = {"PYTHONPATH": str(more), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env, cwd=folder)
    told = json.loads(done.stdout.splitlines()[-1])
    about = {
        "release": release,
        "wheel": wheel.name,
        "sha256": wheels.digest(wheel),
        "python": platform.python_version(),
    }
    return {**about, **told}


def history(lists: Sequence[dict[str, Any]]) -> str:
    """domain/engines/sglang_names.py: which names came and went between the releases, as a module."""
    rows = [
        (str(x["release"]), {str(n) for n in [*x["printed"], *x["hidden"]] if str(n).startswith("--")}) for x in lists
    ]
    out = ['"""Option names of stock SGLang by release, from its real parsers: tests/builds/make_reference.py."""']
    for title, text in (("CAME", "first seen in that release"), ("GONE", "no longer in that release")):
        out += ["", f"{title} = {{"]
        before: set[str] = set()
        for release, names in rows:
            found = sorted(n[2:] for n in (names - before if title == "CAME" else before - names))
            words = textwrap.wrap(" ".join(found), 112, break_on_hyphens=False, break_long_words=False)
            out += [f'    "{release}": """', *(f"        {line}" for line in words), '    """,']
            before = names
        out += ["}", f'"""release -> names {text}, of the releases that were read."""']
    return "\n".join(out) + "\n"


def main(argv: Sequence[str]) -> int:
    """Writes a file a release."""
    out = HERE / "reference"
    out.mkdir(exist_ok=True)
    lists: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        more = msgspec(Path(folder))
        for release in argv or wheels.RELEASES:
            made = make(release, more)
            (out / f"{release}.json").write_text(json.dumps(made, indent=1) + "\n")
            lists.append(made)
            print(release, *(f"{key} {len(made[key])}" for key in ("printed", "hidden", "switches")))
    if not argv:
        where = HERE.parents[1] / "console/ddtree_console/domain/engines/sglang_names.py"
        where.write_text(history(lists))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
