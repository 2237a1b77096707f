"""Flags that the operator set and the server does not have so: ignored, capped, overridden, captured. Pure.

Effective values come from the server itself, else from the arguments in its log; captures and the true concurrency from
its log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddtree_console.domain.secrets import is_secret_name
from ddtree_console.domain.snapshot import Drift

DECODE, PREFILL = ("graphs", "draft graphs"), ("piecewise graphs", "draft piecewise graphs")
CAPTURES: Mapping[str, tuple[str, ...]] = {
    "disable-cuda-graph": (DECODE[0], PREFILL[0], DECODE[1], PREFILL[1]),
    "disable-piecewise-cuda-graph": PREFILL,
    "disable-prefill-cuda-graph": PREFILL,
    "disable-decode-cuda-graph": DECODE,
    "cuda-graph-backend-prefill": PREFILL,
    "cuda-graph-backend-decode": DECODE,
}
"""flag -> phases of the log that must not be seen when it is set, or set to `disabled`."""
FIELDS: Mapping[str, str] = {
    "model": "model-path", "tensor-parallel-size": "tp-size", "tp": "tp-size", "data-parallel-size": "dp-size",
    "dp": "dp-size", "pipeline-parallel-size": "pp-size", "pp": "pp-size", "expert-parallel-size": "ep-size",
    "speculative-draft-model": "speculative-draft-model-path", "speculative-algo": "speculative-algorithm",
    "mem-fraction": "mem-fraction-static", "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
    "speculative-dflash-draft-window-size": "speculative-draft-window-size",
}  # fmt: skip
"""other spellings of a flag -> the field under which the server reports it."""
SAME = {
    "bf16": "bfloat16",
    "half": "float16",
    "fp16": "float16",
    "float": "float32",
    "fp32": "float32",
    "nextn": "eagle",
}
"""values that a server reports in another spelling."""
SLOTS_OWN = ("port",)
"""set by the slot, whatever a profile says."""
ROUNDING = 1024
"""tokens by which a pool may fall short of its cap: it is cut to whole pages."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|k|M|G)\Z")
_FACTOR = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def plain(value: Any) -> Any:
    """A value as it compares: numbers by value (32Ki is 32768), lists by their members, the rest by text."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, (list, tuple)):
        members = [plain(member) for member in value]
        return members[0] if len(members) == 1 else tuple(members)
    text = str(value).strip()
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    size = _SIZE.match(text)
    if size is not None:
        return float(size.group(1)) * _FACTOR[size.group(2)]
    try:
        return float(text)
    except ValueError:
        word = text[len("torch.") :] if text.startswith("torch.") else text.rstrip("/")
        return SAME.get(word.lower(), word)


def _same(flag: str, asked: Any, effective: Any) -> bool:
    a, b = plain(asked), plain(effective)
    if a is False and b is None:
        return True
    if flag == "speculative-algorithm" and isinstance(a, str) and isinstance(b, str):
        return a.lower() == b.lower()
    return bool(a == b)


def shown(value: Any) -> str:
    """A value in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return " ".join(shown(member) for member in value)
    return "unset" if value is None else str(value)


def _why(asked: Any, effective: Any) -> str:
    a, b = plain(asked), plain(effective)
    if b is None or (a is True and b is False):
        return "ignored"
    if isinstance(a, float) and isinstance(b, float) and not isinstance(a, bool) and b < a:
        return "capped"
    return "overridden"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None


def merged(effective: Mapping[str, Any], arguments: Mapping[str, Any], totals: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the server: its own answer, else the arguments that it logged; limits as the scheduler has them.

    totals: figures of the log (max_running_requests is of one data-parallel rank, max_total_num_tokens, context_len).
    """
    known = {**arguments, **effective}
    ranks = _number(known.get("dp-size")) or 1.0
    admitted, told = _number(totals.get("max_running_requests")), _number(known.get("max-running-requests"))
    if admitted is not None:
        known["max-running-requests"] = int(min(admitted * ranks, told) if told is not None else admitted * ranks)
    pool = _number(known.get("max-total-num-tokens")) or _number(totals.get("max_total_num_tokens"))
    if pool is not None:
        known["max-total-num-tokens"] = int(pool)
    longest = _number(totals.get("context_len"))
    if longest is not None and known.get("context-length") is None:
        known["context-length"] = int(longest)
    return known


def compare(
    asked: Mapping[str, Any],
    effective: Mapping[str, Any],
    phases: Sequence[str],
    must: Sequence[str] = (),
    arguments: Mapping[str, Any] | None = None,
    totals: Mapping[str, Any] | None = None,
    capped: str = "",
) -> list[Drift]:
    """Differences among the flags that were set; a flag that the server does not report is none.

    effective: dash name -> value of the server's own answer. arguments: the same from its log. totals: as `merged`.
    capped: the line of the log that says why fewer requests are admitted, '' for none.
    A secret is not compared: servers hide theirs, and neither value may get into an event.
    """
    known = merged(effective, arguments or {}, totals or {})
    found: list[Drift] = []
    for flag, value in asked.items():
        if is_secret_name(flag) or flag in SLOTS_OWN:
            continue
        one = _difference(flag, value, known) or _captured(flag, value, phases)
        if one is not None:
            why = f"{one[2]}: {capped}" if capped and flag == "max-running-requests" else one[2]
            found.append(Drift(flag, one[0], one[1], flag in must, why))
    return found


def _difference(flag: str, asked: Any, known: Mapping[str, Any]) -> tuple[str, str, str] | None:
    if flag == "max-total-tokens":
        pool, cap = _number(known.get("max-total-num-tokens")), _number(plain(asked))
        if pool is not None and cap is not None and pool < cap - ROUNDING:
            return shown(asked), f"{int(pool)} tokens in the pool", "capped"
    field = flag if flag in known else FIELDS.get(flag, flag)
    if field not in known or _same(field, asked, known[field]):
        return None
    return shown(asked), shown(known[field]), _why(asked, known[field])


def _captured(flag: str, asked: Any, phases: Sequence[str]) -> tuple[str, str, str] | None:
    off = plain(asked) is True if flag.startswith("disable-") else plain(asked) == "disabled"
    seen = [name for name in CAPTURES.get(flag, ()) if name in phases] if off else []
    if not seen:
        return None
    why = "captured"
    if flag == "disable-cuda-graph" and not any(name in DECODE for name in seen):
        why += ": this release stops only the decode graph with it; --disable-piecewise-cuda-graph stops the other"
    return shown(asked), f"{', '.join(seen)} captured", why


def signature(drift: Iterable[Drift]) -> str:
    """The same for the same differences in any order, '' for none: what an operator accepted."""
    rows = sorted(f"{d.flag}\0{d.asked}\0{d.effective}" for d in drift)
    return hashlib.sha256("\n".join(rows).encode("utf-8", "replace")).hexdigest()[:16] if rows else ""


def accepted(drift: Sequence[Drift], kept: str) -> bool:
    """Whether these very differences were accepted; kept: the signature that the host keeps for the slot."""
    return bool(drift) and bool(kept) and signature(drift) == kept
