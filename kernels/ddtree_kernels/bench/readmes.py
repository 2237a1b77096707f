"""`python -m ddtree_kernels.bench readmes FILE`: the tables of the operations' READMEs from the CSV of a run.

A table stands between the lines `<!-- operation -->` and `<!-- end -->`; operations that the file lacks keep theirs.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from ddtree_kernels.bench.rows import HEAD, Row, of_csv

OPS = Path(__file__).parent.parent / "ops"
BLOCKS = {"linear_accept": "tree_accept"}
"""Operations whose rows stand in another's table."""
HOW = "Times are CUDA-graph replays; the published algorithm and the references, which wait for the host, by events."


def tables(file: Path) -> dict[str, str]:
    """Each block's text by its name."""
    rows: dict[str, list[Row]] = {}
    machine = ""
    with file.open(newline="", encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            row = of_csv(line)
            machine = line["machine"]
            rows.setdefault(BLOCKS.get(row.op, row.op), []).append(row)
    found = {}
    for block, of in rows.items():
        mixed = len({row.op for row in of}) > 1
        found[block] = "\n".join([f"{machine}, bf16. {HOW}", "", HEAD, *(row.cells(op=mixed) for row in of)])
    return found


def replaced(text: str, block: str, table: str) -> str:
    """The README's text with this table in its place, if it has one."""
    between = re.compile(rf"(<!-- {block} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    return between.sub(lambda match: f"{match[1]}{table}{match[2]}", text)


def main(file: Path, folder: Path = OPS) -> int:
    """Writes the READMEs that change and says which."""
    found = tables(file)
    for readme in sorted(folder.glob("*/README.md")):
        before = after = readme.read_text("utf-8")
        for block, table in found.items():
            after = replaced(after, block, table)
        if after != before:
            readme.write_text(after, "utf-8")
            print(readme)
    return 0
