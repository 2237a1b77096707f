"""Makes tests/builds/reference/*.json: every option of each release, as the release's own parser has them.

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
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

from tests.builds import wheels  # noqa: E402


def msgspec(where: Path) -> Path:
    """A folder with msgspec for this interpreter. CalledProcessError where pip cannot install it."""
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(where), "msgspec"]
    subprocess.run(argv, check=True)
    return where


def make(release: str, more: Path) -> dict[str, object]:
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


def main(argv: Sequence[str]) -> int:
    """Writes a file a release."""
    out = HERE / "reference"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        more = msgspec(Path(folder))
        for release in argv or wheels.RELEASES:
            made = make(release, more)
            (out / f"{release}.json").write_text(json.dumps(made, indent=1) + "\n")
            print(release, *(f"{key} {len(made[key])}" for key in ("printed", "hidden", "switches")))  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
