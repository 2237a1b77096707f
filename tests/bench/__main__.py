"""`python -m tests.bench [NAME...]`: prints the table; exit status 1 when a bound was not kept."""

from __future__ import annotations

import os
import sys

from tests.bench import figures, story

ALL = {
    "first-frame": figures.first_frame,
    "idle": figures.idle,
    "calm": figures.calm,
    "flood": figures.flood,
    "sixty": figures.sixty,
    "story": story.story,
}


def main(names: list[str]) -> int:
    """Runs the named figures, all by default."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no such figure: {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}", flush=True)
    over = 0
    for name in names or ALL:
        for figure in ALL[name]():
            print(figure.line(), flush=True)
            over += not figure.held
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
