"""The memory bar: figures and bar at any width, bounded rows, and a redraw when the estimate changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult

from ddtree_console.domain.memory.types import Estimate, Term
from ddtree_console.ui.paint import Row
from ddtree_console.ui.theme import DARK
from ddtree_console.ui.widgets.memory_bar import LOOKS, MemoryBar, bar, cells, rows

GiB = 2**30
FITS = Estimate(
    "fits",
    terms=(
        Term("weights", 12 * GiB),
        Term("draft", 1 * GiB),
        Term("kv pool", 20 * GiB),
        Term("graphs", 2 * GiB),
        Term("reserve", 1 * GiB),
        Term("free", 12 * GiB),
    ),
    capacity=48 * GiB,
    tokens=131072,
    bytes_per_token=147456,
    requests=48,
    least=0.3,
    greatest=0.91,
)
OVER = Estimate(
    "does not fit",
    "weights",
    terms=(Term("weights", 56 * GiB), Term("kv pool", 0), Term("reserve", 2 * GiB), Term("free", -10 * GiB)),
    capacity=48 * GiB,
    tokens=0,
    bytes_per_token=65536,
    requests=0,
    levers=("not on this card: weights take 56.0 of 47.4 GiB", "tp-size 2 on 2 GPUs like this one: 9 tokens"),
)


def text(lines: list[Row]) -> list[str]:
    """Rows as plain lines."""
    return ["".join(piece for piece, _ in line) for line in lines]


def test_at_eighty_columns() -> None:
    lines = text(rows(FITS, 79))
    assert lines[0] == "MEMORY  ● fits" + "48.0 GiB a GPU".rjust(79 - 14)
    assert lines[2:] == [
        "█ weights 12.0  ▓ draft 1.0  ▒ kv 20.0  = graphs 2.0  - reserve 1.0",
        "· free 12.0",
        "131,072 tokens · 144.0 KiB each · 48 running requests",
        "mem-fraction 0.300 to 0.910",
    ]


def test_at_forty_columns() -> None:
    assert text(rows(FITS, 39))[2:] == [
        "█ weights 12.0  ▓ draft 1.0  ▒ kv 20.0",
        "= graphs 2.0  - reserve 1.0",
        "· free 12.0",
        "131,072 tokens · 144.0 KiB each",
        "48 running requests",
        "mem-fraction 0.300 to 0.910",
    ]


def test_the_bar_is_in_proportion() -> None:
    (line,) = text([bar(FITS, 49)])
    shares = {fill: line.count(fill) for _, fill, _ in LOOKS.values()}
    assert shares == {"█": 12, "▓": 1, "▒": 20, "░": 0, "▞": 0, "=": 2, "-": 1, "·": 12}
    assert line.endswith("▏")


def test_what_is_too_much_stands_behind_the_end_of_the_card() -> None:
    (line,) = text([bar(OVER, 59)])
    assert line.index("▏") == 48
    assert line[49:] == "!" * 10
    shown = text(rows(OVER, 59))
    assert shown[0].startswith("MEMORY  ✖ does not fit: weights")
    assert "! too much 10.0" in "\n".join(shown)
    assert "no mem-fraction works" in "\n".join(shown)
    assert "→ not on this card: weights take 56.0 of 47.4 GiB" in shown


def test_what_is_not_known_says_why() -> None:
    unknown = Estimate(problems=("not known, because config.json lacks num_hidden_layers",))
    assert text(rows(unknown, 60)) == ["MEMORY  ? not known", unknown.problems[0]]
    assert text(rows(None, 60))[0].rstrip() == "MEMORY  no estimate for this engine"


def test_a_hosts_text_is_no_markup_and_has_no_controls() -> None:
    nasty = replace(OVER, problems=("[red]x[/] \x1b[31mred\x07",), levers=())
    last = text(rows(nasty, 79))[-1]
    assert "[red]x[/]" in last and "\x1b" not in last and "\x07" not in last


sizes = st.lists(st.integers(0, 10**12), min_size=1, max_size=8)


@given(sizes, st.integers(0, 200))
def test_cells_fill_the_bar_and_hide_nothing(parts: list[int], wide: int) -> None:
    found = cells(parts, wide)
    assert min(found) >= 0
    assert sum(found) == (wide if sum(parts) else 0)
    if wide >= len(parts):
        assert all(bool(cell) == bool(part) for cell, part in zip(found, parts, strict=True))


terms = st.dictionaries(st.sampled_from([n for n in LOOKS if n != "free"]), st.integers(0, 10**12), max_size=7)


@given(terms, st.integers(1, 10**12), st.integers(30, 160), st.sampled_from(["fits", "tight", "does not fit"]))
def test_no_row_is_wider_than_the_pane(parts: dict[str, int], capacity: int, wide: int, verdict: str) -> None:
    made = tuple(Term(name, size) for name, size in parts.items())
    made = (*made, Term("free", capacity - sum(parts.values())))
    estimate = replace(FITS, verdict=verdict, terms=made, capacity=capacity, levers=("x " * 90,))
    shown = text(rows(estimate, wide))
    assert max(map(cell_len, shown)) <= wide
    assert all(name in "\n".join(shown) for name in ("MEMORY", verdict))


class Host(App[None]):
    """An app that holds nothing but the bar."""

    def compose(self) -> ComposeResult:
        """The bar."""
        yield MemoryBar(id="memory")

    def on_mount(self) -> None:
        """As the real app."""
        self.register_theme(DARK)
        self.theme = DARK.name


@pytest.mark.parametrize("size", [(80, 24), (40, 24)])
async def test_it_moves_while_the_operator_edits(size: tuple[int, int]) -> None:
    app = Host()
    async with app.run_test(size=size) as pilot:
        widget = app.query_one(MemoryBar)
        await pilot.pause()
        assert "no estimate" in widget.text
        widget.estimate = FITS
        await pilot.pause()
        first, tall = widget.text, widget.size.height
        assert "● fits" in first and tall == len(first.splitlines()) > 3
        half = tuple(replace(t, bytes={"kv pool": 10 * GiB, "free": 22 * GiB}.get(t.name, t.bytes)) for t in FITS.terms)
        widget.estimate = replace(FITS, terms=half, tokens=65536)
        await pilot.pause()
        assert widget.text.count("▒") < first.count("▒") and "65,536 tokens" in widget.text
        widget.estimate = OVER
        await pilot.pause()
        assert widget.size.height == len(widget.text.splitlines())
        assert "✖ does not fit" in widget.text


async def test_another_width_draws_it_anew() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        widget = app.query_one(MemoryBar)
        widget.estimate = FITS
        await pilot.pause()
        wide = widget.text.splitlines()[1]
        await pilot.resize_terminal(40, 24)
        await pilot.pause()
        assert cell_len(widget.text.splitlines()[1]) < 40 < cell_len(wide)
