"""What became of SGLang's option names: where each went, and since which release. Data; FACTS by release."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ddtree_console.domain.engines.sglang_names import CAME, GONE

_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")

RENAMED: Mapping[str, tuple[str, ...]] = {
    "disable-piecewise-cuda-graph": ("disable-prefill-cuda-graph",),
    "enable-piecewise-cuda-graph": ("cuda-graph-backend-prefill",),
    "enforce-piecewise-cuda-graph": ("cuda-graph-backend-prefill",),
    "enable-breakable-cuda-graph": ("cuda-graph-backend-prefill=breakable",),
    "piecewise-cuda-graph-max-tokens": ("cuda-graph-max-bs-prefill",),
    "piecewise-cuda-graph-tokens": ("cuda-graph-bs-prefill",),
    "piecewise-cuda-graph-compiler": ("cuda-graph-tc-compiler",),
    "cuda-graph-max-bs": ("cuda-graph-max-bs-decode",),
    "cuda-graph-bs": ("cuda-graph-bs-decode",),
    "mamba-scheduler-strategy": ("mamba-radix-cache-strategy",),
    "speculative-dflash-draft-window-size": ("speculative-draft-window-size",),
    "stream-output": ("incremental-streaming-output",),
    "hybrid-kvcache-ratio": ("swa-full-tokens-ratio",),
    "nsa-prefill-backend": ("dsa-prefill-backend",),
    "nsa-decode-backend": ("dsa-decode-backend",),
    "nsa-prefill-cp-mode": ("cp-strategy",),
    "dsa-prefill-cp-mode": ("cp-strategy",),
    "prefill-cp-mode": ("cp-strategy",),
    "enable-nsa-prefill-context-parallel": ("enable-prefill-cp",),
    "enable-dsa-prefill-context-parallel": ("enable-prefill-cp",),
    "enable-prefill-context-parallel": ("enable-prefill-cp",),
    "elastic-ep-rejoin": ("elastic-ep-join-mode=recover",),
    "keep-mm-feature-on-device": ("mm-feature-transport=cuda_ipc",),
    "enable-deepep-moe": ("moe-a2a-backend=deepep",),
    "enable-flashinfer-mla": ("attention-backend=flashinfer",),
    "enable-flashmla": ("attention-backend=flashmla",),
    "enable-dp-attention": ("attn-dp-size",),
    "disable-cuda-graph": ("disable-decode-cuda-graph --disable-prefill-cuda-graph",),
    # a newer name on an older build
    "disable-prefill-cuda-graph": ("disable-piecewise-cuda-graph",),
    "disable-decode-cuda-graph": ("disable-cuda-graph",),
    "cuda-graph-max-bs-decode": ("cuda-graph-max-bs",),
    "cuda-graph-bs-decode": ("cuda-graph-bs",),
    "cuda-graph-max-bs-prefill": ("piecewise-cuda-graph-max-tokens",),
    "cuda-graph-bs-prefill": ("piecewise-cuda-graph-tokens",),
    "mamba-radix-cache-strategy": ("mamba-scheduler-strategy",),
    "speculative-draft-window-size": ("speculative-dflash-draft-window-size",),
    "incremental-streaming-output": ("stream-output",),
    "attn-dp-size": ("enable-dp-attention",),
    "dsa-prefill-backend": ("nsa-prefill-backend",),
    "dsa-decode-backend": ("nsa-decode-backend",),
}
"""name -> names (with a value after `=`) that do the same in builds which lack it, best first."""

SINCE: Mapping[str, tuple[str, str]] = {
    "disable-piecewise-cuda-graph": ("0.5.10", "0.5.20"),
    "cuda-graph-max-bs": ("", "0.5.20"),
    "cuda-graph-bs": ("", "0.5.20"),
    "mamba-scheduler-strategy": ("0.5.7", "0.5.20"),
    "speculative-dflash-draft-window-size": ("0.5.11", "0.5.20"),
    "hybrid-kvcache-ratio": ("0.4.10", "0.5.14"),
    "cuda-graph-tc-compiler": ("0.5.14", "0.5.22"),
    "enable-piecewise-cuda-graph": ("", "0.5.14"),
    "disable-prefill-cuda-graph": ("0.5.14", ""),
    "disable-decode-cuda-graph": ("0.5.14", ""),
    "cuda-graph-max-bs-decode": ("0.5.14", ""),
    "cuda-graph-max-bs-prefill": ("0.5.14", ""),
    "cuda-graph-bs-decode": ("0.5.14", ""),
    "cuda-graph-bs-prefill": ("0.5.14", ""),
    "cuda-graph-backend-prefill": ("0.5.14", ""),
    "cuda-graph-backend-decode": ("0.5.14", ""),
    "mamba-radix-cache-strategy": ("0.5.14", ""),
    "speculative-draft-window-size": ("0.5.12", ""),
    "speculative-draft-kv-cache-dtype": ("0.5.18", ""),
    "attn-dp-size": ("0.5.22", ""),
}
"""name -> (first release with it, first release without it) where that is known exactly; '' for none."""


def number(release: str) -> tuple[int, int, int] | None:
    """(0, 5, 12) of 0.5.12, 0.5.12.post1, 0.5.12.dev3+gabc; None where there is no such number."""
    match = _RELEASE.match(release)
    return (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match else None


def life(name: str, release: str) -> tuple[str, str]:
    """(with which later release stock SGLang got that option, since which it lacks it), in words; '' for neither.

    release: of the build that lacks it; where it is not known an option that was ever removed counts as removed.
    """
    came, gone = "", ""
    for at, names in CAME.items():
        if name in names.split():
            came = at
    for at, names in GONE.items():
        if name in names.split():
            gone = at
    came, gone = (exact or read for exact, read in zip(SINCE.get(name, ("", "")), (came, gone)))
    mine, began, ended = number(release), number(came), number(gone)
    if mine is not None and began is not None and mine < began:
        return _between(came), ""
    return ("", _between(gone)) if ended is not None and (mine is None or mine >= ended) else ("", "")


def _between(at: str) -> str:
    """`0.5.15` may only be the first of those that were read: say so."""
    releases = list(CAME)
    known = any(at in pair for pair in SINCE.values())
    if known or at not in releases or at == releases[0]:
        return at
    return f"{at} or a release after {releases[releases.index(at) - 1]}"
