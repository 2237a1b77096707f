"""All keys and states on one screen."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding
from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.ui.paint import Piece, Row, columns, row
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.screens.base_keys import GLOBAL_KEYS, OTHER_KEYS
from ddtree_console.ui.widgets.bars import KEY_NAMES
from ddtree_console.ui.widgets.rows import Rows

STATES: tuple[tuple[str, str, str], ...] = (
    ("● ready", "good", "this start generated a token and held"),
    ("● ready ≠", "good", "ready, but a flag or file is not what was asked: drift"),
    ("◐ starting 62%", "work", "not ready; percent of the last good start's time"),
    ("◐ answers", "work", "HTTP answers, no token seen from this start yet"),
    ("↻ going back", "work", "to the known good release or the way back"),
    ("▲ degraded", "warn", "served, and something is wrong now"),
    ("▲ not committed", "warn", "serves; a reboot starts the release before"),
    ("✖ failed", "bad", "x says why"),
    ("○ stopped", "dim", "nothing runs"),
    ("? unreachable 14s", "warn", "not heard of since; nothing is claimed"),
)


def key_rows(wide: int) -> list[Row]:
    """Keys, then states."""
    keys: list[tuple[str, str]] = []
    for binding in GLOBAL_KEYS:
        if isinstance(binding, Binding) and binding.tooltip and binding.key not in ("escape", "ctrl+r", "colon,ctrl+p"):
            keys.append((KEY_NAMES.get(binding.key, binding.key), binding.tooltip))
    pairs = [*keys, *OTHER_KEYS]
    rows: list[Row] = [row(""), row((" KEYS", "title"))]
    if wide >= 100:
        half = (len(pairs) + 1) // 2
        size = (wide - 4) // 2 - 14
        for i in range(half):
            cells = [pairs[i], pairs[half + i] if half + i < len(pairs) else ("", "")]
            pieces = [p for key, words in cells for p in ((key, "bold"), (words, ""))]
            rows.append(((" ", ""), *columns((12, size, 12, size), pieces)))
    else:
        rows += [((" ", ""), *columns((12, max(8, wide - 15)), [(k, "bold"), (w, "")])) for k, w in pairs]
    rows += [row(""), row((" STATES", "title"))]
    rows += [((" ", ""), *columns((18, max(8, wide - 21)), [(s, style), (words, "")])) for s, style, words in STATES]
    return rows


class KeysScreen(ConsoleScreen):
    """`?`."""

    not_here = frozenset({"keys", "zoom"})

    def body(self) -> Iterable[Widget]:
        """One pane."""
        yield Rows(id="main")

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """HELP."""
        return [(" HELP", "title")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Fixed text, fitted to the width."""
        pane = self.query_one("#main", Rows)
        pane.show(key_rows(max(18, pane.size.width - 1)))

    def copy_text(self) -> str:
        """All of it."""
        return self.query_one("#main", Rows).text
