"""How a transaction ended, as glyph, word and colour."""

from __future__ import annotations

OUTCOMES = {
    "committed": ("●", "committed", "good"),
    "serving_uncommitted": ("▲", "not committed", "warn"),
    "went_back": ("↻", "went back", "warn"),
    "went_way_back": ("↻", "to the way back", "warn"),
    "stopped": ("✖", "stopped", "bad"),
    "nothing_serves": ("✖", "nothing serves", "bad"),
    "left": ("✖", "left as it was", "bad"),
    "refused": ("✖", "refused", "bad"),
    "cut": ("✖", "cut by a reboot", "bad"),
}
