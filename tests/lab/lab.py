"""The lab's command line.

    python tests/lab/lab.py run CMD...    runs CMD (pytest ...) where it can start real hosts
    python tests/lab/lab.py shell [N]     N hosts and a shell
    python tests/lab/lab.py why-not       the reason why this machine cannot hold a lab, or nothing

Root and Linux only; needs the Debian packages that .ci/run names. Standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[0] = str(ROOT)  # run by its path: what it imports is tests.lab

from tests.lab import runner  # noqa: E402
from tests.lab.cluster import Lab  # noqa: E402


def shell(count: int) -> None:
    """Hosts h1..hN and an interactive shell beside them."""
    with Lab(tuple(f"h{i + 1}" for i in range(count))) as lab:
        for host in lab.hosts.values():
            print(f"{host.name} {host.ip} pid {host.pid}:", " ".join(host.ssh_argv()))
        subprocess.run(["bash"], check=False)


def main(argv: list[str]) -> int:
    """Exit status of the command."""
    match argv:
        case ["run", *command] if command:
            return runner.run(command)
        case ["why-not"]:
            print(runner.why_not() or "")
        case ["shell", *rest] if runner.inside():
            shell(int(rest[0]) if rest else 2)
        case ["shell", *rest]:
            return runner.run([sys.executable, __file__, "shell", *rest])
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
