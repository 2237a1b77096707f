"""One request after the other through one pair: prefill in chunks, then rounds, as a stream of new tokens."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ddtree_kernels.decode.round import Place, Round
from ddtree_kernels.decode.sampling import Chooser, Sampling
from ddtree_kernels.decode.settings import Settings

if TYPE_CHECKING:
    from ddtree_kernels.decode.graphs import Captured
    from ddtree_kernels.models.api import Cache, Pair

CHUNK = {"cpu": 512, "cuda": 2048}
"""Prompt tokens of one prefill pass, by device."""


class PromptError(ValueError):
    """A prompt that cannot be decoded: empty, out of the vocabulary, or too long; one line."""


@dataclass
class Counts:
    """Of one request or of a server's life. rounds: verifications by the target. committed: tokens of these rounds.
    would: what the tree would have committed (shadow-linear; else as committed). longer: rounds in which that is more.
    contradictions: rounds in which tree and chain disagree about the tokens both have; a fault, never expected."""

    rounds: int = 0
    committed: int = 0
    would: int = 0
    longer: int = 0
    contradictions: int = 0

    def add(self, count: int, would: int, contradiction: int) -> None:
        """One more round."""
        self.rounds += 1
        self.committed += count
        self.would += would
        self.longer += would > count
        self.contradictions += contradiction

    @property
    def accept_length(self) -> float | None:
        """Tokens a round; None before the first."""
        return self.committed / self.rounds if self.rounds else None


class Engine:
    """A pair with its caches and one way of decoding. Not for several threads at once."""

    def __init__(
        self,
        pair: Pair,
        settings: Settings,
        cache: Cache,
        draft_cache: Cache | None,
        *,
        context: int | None = None,
        static: bool = False,
        chunk: int | None = None,
    ) -> None:
        """settings: fitted. context: the most tokens of prompt and answer; None = what the caches hold.
        static: rounds as they are captured, tensors for lengths; needed for graphs, slower on a CPU."""
        draft = pair.draft if settings.drafts else None
        device = pair.target.device
        self.pair, self.settings, self.device = pair, settings, device
        self.choose = Chooser(device)
        room = cache.rows - reserve(settings, draft.block_size if draft is not None else 1)
        self.context = room if context is None else min(context, room)
        most = self.context + cache.rows - room
        self.round = Round(
            settings, pair.target, draft, cache, draft_cache, self.choose, static=static, max_length=most
        )
        if static:
            self.round.place = self._static_place()
        self.chunk = chunk or CHUNK[device.type]
        self.graphs: dict[bool, Captured] = {}
        """Captured rounds by greedy or not; empty = rounds run eagerly."""

    def _static_place(self) -> Place:
        round_, device = self.round, self.device
        pending = None
        if self.round.draft_model is not None:
            wide = len(self.pair.target.layer_ids) * self.pair.target.config.shape.hidden_size
            pending = torch.zeros(round_.width, wide, dtype=self.pair.target.dtype, device=device)

        def number() -> torch.Tensor:
            return torch.zeros(1, dtype=torch.int64, device=device)

        return Place(number(), number(), number(), pending)

    def check(self, prompt: Sequence[int]) -> None:
        """PromptError unless at least one token can follow this prompt."""
        vocabulary = self.pair.target.config.vocab_size
        if not prompt:
            raise PromptError("the prompt is empty")
        if len(prompt) >= self.context:
            raise PromptError(
                f"the prompt has {len(prompt)} tokens; with at least one of answer that is more than the context "
                f"length of {self.context} tokens"
            )
        wrong = next((token for token in prompt if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise PromptError(f"token {wrong} is not in the vocabulary of 0 to {vocabulary - 1}")

    def stop_ids(self, sampling: Sampling) -> frozenset[int]:
        """Tokens that end this request."""
        own = () if sampling.ignore_eos else self.pair.target.config.stop_ids
        return frozenset((*own, *sampling.stop_token_ids))

    def generate(
        self, prompt: Sequence[int], sampling: Sampling, seed: int, counts: Counts | None = None
    ) -> Generator[list[int], None, None]:
        """New tokens, some at a time; an empty list after each part of the prompt. Ends after a stop token, which is
        the last one given, after max_new_tokens, or where the context is full. Closing it early is a cancellation.

        PromptError before anything runs.
        """
        self.check(prompt)
        return self._generate(list(prompt), sampling, seed, counts if counts is not None else Counts())

    def _generate(
        self, prompt: list[int], sampling: Sampling, seed: int, counts: Counts
    ) -> Generator[list[int], None, None]:
        left = min(sampling.max_new_tokens, self.context - len(prompt))
        stops = self.stop_ids(sampling)
        self.choose.set(sampling, seed)
        for part in self._prefill(prompt):
            yield part
            left -= len(part)
            if left <= 0 or stops.intersection(part):
                return
        for row in self._rounds(sampling.greedy):
            *tokens, count, would, contradiction = row
            counts.add(count, would, contradiction)
            new = tokens[: min(count, left)]
            end = next((i for i, token in enumerate(new) if token in stops), None)
            new = new if end is None else new[: end + 1]
            yield new
            left -= len(new)
            if left <= 0 or end is not None:
                return

    def _prefill(self, prompt: list[int]) -> Iterator[list[int]]:
        """Runs the prompt; the last thing given is the first new token, with the place set behind the prompt."""
        round_, target = self.round, self.pair.target
        draft, draft_cache = round_.draft_model, round_.draft_cache
        for start in range(0, len(prompt), self.chunk):
            with torch.inference_mode():
                tokens = torch.tensor(prompt[start : start + self.chunk], device=self.device)
                hidden, features = target.forward(tokens, None, round_.cache, start, features=draft is not None)
                if draft is not None:
                    assert features is not None and draft_cache is not None
                    draft.extend(features, draft_cache, start)
            if start + self.chunk < len(prompt):
                yield []
        with torch.inference_mode():
            root = self.choose(target.logits(hidden[-1:]))
            self.begin(len(prompt), root, features)
        yield root.tolist()

    def begin(self, length: int, root: torch.Tensor, features: torch.Tensor | None) -> None:
        """The place behind a prompt. Statically the last features are pending once more: writing them again is
        harmless, and a captured round always writes the same number."""
        place = self.round.place
        if not self.round.static:
            self.round.place = Place(length, root, length, None)
            return
        assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
        place.length.fill_(length)
        place.before.fill_(length)
        place.root.copy_(root)
        if place.pending is not None and features is not None:
            again = min(len(features), self.round.width)
            place.pending[:again] = features[len(features) - again :]
            place.before.fill_(length - again)

    def _rounds(self, greedy: bool) -> Iterator[list[int]]:
        """Output rows of the rounds, without end."""
        captured = self.graphs.get(greedy)
        if captured is not None:
            yield from captured.rows()
            return
        while True:
            with torch.inference_mode():
                self.round.run()
                row = self.round.row()
            yield row


def reserve(settings: Settings, block_size: int) -> int:
    """Cache rows that no request may use: a round writes all its nodes behind the committed rows, and a captured round
    is started before the end of the one before is known."""
    nodes = settings.nodes(block_size)
    return 2 * max(nodes, block_size)
