"""What a host or a fleet cannot do, as exceptions. Light: the first frame and the shell's start need nothing else."""

from __future__ import annotations

from collections.abc import Sequence


class HostError(Exception):
    """A host could not do it: names host, action, cause and next step. code: exit code of FORMATS (5, 6, 7, ...)."""

    def __init__(self, host: str, action: str, cause: str, next_step: str, code: int = 5) -> None:
        super().__init__(f"{host}: {action}: {cause}; {next_step}")
        self.host, self.action, self.cause, self.next_step, self.code = host, action, cause, next_step, code


class NoFleet(Exception):
    """There is no fleet file yet. searched: where it was looked for, in that order."""

    def __init__(self, searched: Sequence[str] = ()) -> None:
        super().__init__("no fleet file in " + ", ".join(searched))
        self.searched = tuple(searched)
