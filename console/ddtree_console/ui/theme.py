"""Two calm themes: colour only where it says something. NO_COLOR is honoured by Textual itself."""

from __future__ import annotations

from textual.theme import Theme


def _scrollbars(thumb: str, under: str, active: str) -> dict[str, str]:
    return {
        "scrollbar": thumb,
        "scrollbar-hover": active,
        "scrollbar-active": active,
        "scrollbar-background": under,
        "scrollbar-background-hover": under,
        "scrollbar-background-active": under,
        "scrollbar-corner-color": under,
    }


DARK = Theme(
    name="console-dark",
    primary="#7aa2c8",
    secondary="#5b7a99",
    accent="#7aa2c8",
    foreground="#d0d4d9",
    background="#14171a",
    surface="#14171a",
    panel="#22272c",
    success="#7fb87f",
    warning="#d9a95b",
    error="#e07a76",
    dark=True,
    variables=_scrollbars("#333a41", "#14171a", "#5b7a99"),
)
LIGHT = Theme(
    name="console-light",
    primary="#2b5f8f",
    secondary="#557799",
    accent="#2b5f8f",
    foreground="#22262a",
    background="#fbfbf9",
    surface="#fbfbf9",
    panel="#e6e8e6",
    success="#2f7a3a",
    warning="#94640a",
    error="#b3302c",
    dark=False,
    variables=_scrollbars("#cfd3cf", "#fbfbf9", "#557799"),
)
