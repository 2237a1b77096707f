"""One request on its way: what was asked, what came of it, and the one end that it always has."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddtree_kernels.decode.engine import Counts
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.text import TextStream


@dataclass(frozen=True)
class Part:
    """Something new: tokens, and the text that they make certain. end: SGLang's finish_reason, in the last part only
    ({"type": "stop", "matched": token or text} | {"type": "length", "length": n} | {"type": "abort", "message": why}).
    """

    tokens: tuple[int, ...] = ()
    text: str = ""
    end: dict[str, Any] | None = None


@dataclass(eq=False)
class Job:
    """A request. give is called from the decoding thread, in order, and exactly once with an end."""

    prompt: Sequence[int]
    sampling: Sampling
    text: TextStream
    give: Callable[[Part], None]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    counts: Counts = field(default_factory=Counts)
    tokens: int = 0
    created: float = field(default_factory=time.monotonic)
    started: float | None = None
    first: float | None = None
    ended: float | None = None
    cancelled: str = ""
    """Why it is no longer wanted."""

    def token(self, token: int, stops: frozenset[int]) -> tuple[str, dict[str, Any] | None]:
        """One more token: the text it makes certain, and the end if it is one."""
        self.tokens += 1
        if token in stops:
            return self.text.finish(), {"type": "stop", "matched": token}
        text = self.text.feed([token])
        if self.text.stopped is not None:
            return text, {"type": "stop", "matched": self.text.stopped}
        return text, None

    def full(self) -> dict[str, Any]:
        """The end of a request that got all the tokens it may have."""
        return {"type": "length", "length": self.tokens}


def abort(message: str) -> dict[str, Any]:
    """The end of a request that was cut off."""
    return {"type": "abort", "message": message}
