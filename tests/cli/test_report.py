"""`report` writes one file that only its owner can read, or standard output."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_console.cli import report
from ddtree_console.cli.arguments import parser


def test_the_file_is_its_owners_even_where_it_was_everybodys(tmp_path: Path) -> None:
    path = tmp_path / "incident.md"
    path.write_text("a longer text that was here before")
    path.chmod(0o644)
    report.write(str(path), "# Incident: ö\n")
    assert path.read_text("utf-8") == "# Incident: ö\n"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError, match="No such file"):
        report.write(str(tmp_path / "absent/incident.md"), "")


def test_arguments() -> None:
    args = parser().parse_args(["report", "h1/s1", "--tx", "20260101-000000-abcd", "-o", "x.md"])
    assert (args.command, args.key, args.tx, args.output) == ("report", "h1/s1", "20260101-000000-abcd", "x.md")
