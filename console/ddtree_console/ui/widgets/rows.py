"""A pane of rows: repaints only rows that changed, scrolls with j/k, and never reads markup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ddtree_console.domain.text import visible
from ddtree_console.ui.paint import Row


def palette(app: App[object]) -> dict[str, Style]:
    """Style words to styles, from the app's theme."""
    theme = app.current_theme
    work, good, warn, bad = (_color(c) for c in (theme.primary, theme.success, theme.warning, theme.error))
    return {
        "": Style(),
        "dim": Style(color=_color(theme.foreground), dim=True),
        "bold": Style(bold=True),
        "title": Style(color=work, bold=True),
        "good": Style(color=good),
        "work": Style(color=work),
        "warn": Style(color=warn),
        "bad": Style(color=bad),
        "cursor": Style(reverse=True) if theme.ansi else Style(bgcolor=_color(theme.panel)),
        "evidence": Style(color=warn, bold=True, reverse=True)
        if theme.ansi
        else Style(color=bad, bgcolor=_color(theme.panel), bold=True),
        "badge": Style(color=warn, bold=True, reverse=True),
    }


def _color(name: str | None) -> str:
    """A colour of a theme as Rich spells it; themes with the terminal's own colours say ansi_red."""
    return (name or "default").removeprefix("ansi_")


class Rows(ScrollView, can_focus=True):
    """Shows rows. `show` compares with what is there and refreshes only the difference."""

    DEFAULT_CSS = """
    Rows { height: 1fr; background: $background; color: $foreground; overflow-x: hidden; scrollbar-size: 0 1;
           scrollbar-gutter: stable; }
    Rows.-auto { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "down", show=False),
        Binding("k,up", "scroll_up", "up", show=False),
        Binding("g,home", "scroll_home", "top", show=False),
        Binding("G,end", "scroll_end", "bottom", show=False),
    ]

    class Widened(Message):
        """The pane has another width: its rows must be made anew."""

    def __init__(self, *, id: str | None = None, classes: str | None = None, focus: bool = True) -> None:
        super().__init__(id=id, classes=classes)
        self.can_focus = focus
        self._shown: tuple[Row, ...] = ()
        self._wide = 0
        self._styles_of: dict[str, Style] = {}

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows now on it."""
        return self._shown

    @property
    def text(self) -> str:
        """Its plain text, for copying."""
        return "\n".join("".join(visible(t) for t, _ in r).rstrip() for r in self._shown)

    def on_resize(self) -> None:
        """Tells the screen about another width."""
        if self.size.width != self._wide:
            self._wide = self.size.width
            self.post_message(self.Widened())

    def show(self, rows: Sequence[Row]) -> None:
        """Takes new rows."""
        old, new = self._shown, tuple(rows)
        if old == new:
            return
        self._shown = new
        if len(old) != len(new):
            self.virtual_size = Size(0, len(new))
            self.refresh()
            return
        for y, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b:
                self.refresh_line(y)

    def refresh_line(self, y: int) -> None:
        """Repaints one row, if it is in view."""
        if 0 <= y - self.scroll_offset.y < self.size.height:
            self.refresh_lines(y)

    def notify_style_update(self) -> None:
        """Colours of a new theme."""
        super().notify_style_update()
        self._styles_of = {}

    def style_of(self, words: str) -> Style:
        """The style of one or two style words over the pane's own."""
        found = self._styles_of.get(words)
        if found is None:
            named = palette(self.app)
            found = self.rich_style
            for word in words.split():
                found += named.get(word, Style())
            self._styles_of[words] = found
        return found

    def row_style(self, y: int) -> str:
        """A style word under the whole row; a list marks its cursor with it."""
        return ""

    def render_line(self, y: int) -> Strip:
        """One line of the pane."""
        at, wide = y + self.scroll_offset.y, self.size.width
        under = self.row_style(at)
        if at >= len(self._shown):
            return Strip.blank(wide, self.style_of(""))
        parts = [(visible(t), self.style_of(f"{under} {s}" if under else s)) for t, s in self._shown[at]]
        strip = Strip([Segment(t, s) for t, s in parts], sum(cell_len(t) for t, _ in parts))
        return strip.adjust_cell_length(wide, self.style_of(under))
