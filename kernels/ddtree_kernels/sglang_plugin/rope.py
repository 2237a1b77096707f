"""A draft's rotary base that this release loses. Standard library only.

In 0.5.12 the draft model reads `config.rope_theta` and falls back to 1e6; transformers 5 keeps the value in
`rope_parameters`, so that the attribute is not there whatever the file says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FALLBACK = 1e6


def stated(raw: Mapping[str, Any]) -> float | None:
    """The base in a config.json, old or new form; None where it states none."""
    nested = raw.get("rope_parameters")
    inside = nested.get("rope_theta") if isinstance(nested, Mapping) else None
    for value in (raw.get("rope_theta"), inside):
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return float(value)
    return None


def warning(raw: Mapping[str, Any], seen: Any) -> str:
    """What to say of a draft whose config.json is `raw` and whose loaded config has this rope_theta; '' for nothing."""
    wanted = stated(raw)
    used = float(seen) if isinstance(seen, (int, float)) and not isinstance(seen, bool) else FALLBACK
    if wanted is None or wanted == used:
        return ""
    return (
        f"DDTREE: the draft was trained with rope_theta {wanted:g}, but this release reads {used:g}: answers stay "
        "right, and it drafts worse the longer the context; measure its accept length before you rely on it"
    )
