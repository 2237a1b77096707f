"""Tokens to text while they come: nothing is given out that later tokens could change, or that a stop text takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "�"
_LATEST = 8
"""Tokens that are decoded again with the next ones: a character or a merge spans no more."""


class TextStream:
    """Text of a growing list of tokens, with texts that end it. Feed until `stopped`, then read `finish()`."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str] = ()) -> None:
        self._decode, self._stops = decode, tuple(stop for stop in stops if stop)
        self._ids: list[int] = []
        self._settled = 0
        self._text = ""
        self._given = 0
        self.stopped: str | None = None
        """The stop text that was found."""

    @property
    def text(self) -> str:
        """All that was given out."""
        return self._text[: self._given]

    def feed(self, tokens: Sequence[int]) -> str:
        """The text that these tokens make certain."""
        if self.stopped is not None:
            return ""
        self._ids.extend(tokens)
        fresh = self._fresh()
        if fresh.endswith(UNFINISHED):
            return ""
        self._settle(fresh)
        return self._give(final=False)

    def finish(self) -> str:
        """The rest of it; what is no character stays a replacement character."""
        if self.stopped is not None:
            return ""
        self._settle(self._fresh())
        return self._give(final=True)

    def _fresh(self) -> str:
        """Text of the tokens not yet settled; a few earlier ones give the decoder its context."""
        first = max(0, self._settled - _LATEST)
        before = self._decode(self._ids[first : self._settled])
        return self._decode(self._ids[first:])[len(before) :]

    def _settle(self, fresh: str) -> None:
        self._text += fresh
        self._settled = len(self._ids)

    def _give(self, final: bool) -> str:
        end = len(self._text)
        longest = max(map(len, self._stops), default=0)
        found = [(self._text.find(stop, max(0, self._given - longest)), stop) for stop in self._stops]
        hits = sorted((at, stop) for at, stop in found if at >= 0)
        if hits:
            end, self.stopped = hits[0]
        elif not final:
            end -= self._held()
        end = max(end, self._given)
        part = self._text[self._given : end]
        self._given = end
        return part

    def _held(self) -> int:
        """Characters at the end that may be the beginning of a stop text."""
        most = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(self._text)), most, -1):
                if self._text.endswith(stop[:size]):
                    most = size
                    break
        return most
