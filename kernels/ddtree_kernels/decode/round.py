"""One round of decoding in five stages: draft, build, verify, accept, commit. The same code runs eagerly and captured.

Eagerly (`static` False) lengths are ints and pending features are as many as were accepted. Captured (`static` True)
lengths are tensors and pending features a fixed number of rows, so that nothing waits for the host; what lies behind
the accepted rows is overwritten before it is read (see models/api.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ddtree_kernels.decode import host
from ddtree_kernels.decode.finish import finish
from ddtree_kernels.decode.highest import highest
from ddtree_kernels.decode.ring import Ring
from ddtree_kernels.decode.sampling import Chooser
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.models.attention import chain_words
from ddtree_kernels.ops.kv_commit import feature_commit
from ddtree_kernels.ops.tree_accept import Accepted, linear_accept, tree_accept
from ddtree_kernels.ops.tree_build import tree_build
from ddtree_kernels.ops.tree_build.tree import DraftTree

if TYPE_CHECKING:
    from ddtree_kernels.models.api import Cache, Draft, Target

STAGES = ("draft", "build", "verify", "accept", "commit")
FIGURES = 3
"""Numbers behind the tokens of an output row: count, the tree's count, whether tree and chain contradict."""


@dataclass(eq=False)
class Place:
    """Where a request stands. length: committed rows of both caches; root [1] int64: the token chosen but not yet run,
    row `length`; pending [m, F]: features of rows before, before + 1 ..., not yet given to the drafter."""

    length: int | torch.Tensor
    root: torch.Tensor
    before: int | torch.Tensor
    pending: torch.Tensor | None


class Round:
    """The stages over one pair, its caches and one mode. Fields hold what a stage leaves for the next."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        draft: Draft | None,
        cache: Cache,
        draft_cache: Cache | None,
        choose: Chooser,
        *,
        static: bool = False,
        max_length: int | None = None,
    ) -> None:
        """settings: fitted to the drafter's block size. draft and its cache: unless the mode is autoregressive."""
        self.settings, self.target, self.cache, self.choose = settings, target, cache, choose
        self.static, self.max_length = static, max_length
        self.on_host = target.device.type == "cpu" and not static
        """Steps between the models by host.py."""
        self.settles = target.device.type == "cuda" and static
        """Accept and commit in one launch, by finish.py, with the output in the ring."""
        self.draft_model, self.draft_cache = draft, draft_cache
        self.block = draft.block_size if draft is not None else 1
        self.nodes = settings.nodes(self.block)
        self.width = min(self.block, self.nodes)
        """The most tokens that a round commits, and feature rows that it leaves."""
        device = target.device
        self.chain = chain_words(self.nodes, device)
        """What a chain's nodes see; kept, since a captured round reads it where it lies."""
        self.place = Place(0, torch.zeros(1, dtype=torch.int64, device=device), 0, None)
        self.logits: torch.Tensor | None = None
        self.tree: DraftTree | None = None
        self.tokens = self.place.root
        self.features: torch.Tensor | None = None
        self.chosen = self.place.root
        self.accepted = Accepted(*(torch.zeros(1, dtype=torch.int32, device=device),) * 2, self.place.root)
        self.figures: torch.Tensor | None = None
        """Of a shadow: int64 [2], what the tree would have committed, and 1 where it contradicts the chain."""
        self.began = torch.zeros(1, dtype=torch.int64, device=device)
        """The place's length as a round that settles began, for its last launch."""
        size = self.width + FIGURES
        self.output = torch.zeros(size, dtype=torch.int64, device=device)
        self.ring = Ring(size, device)
        self._alone = (
            torch.zeros(1, 1, dtype=torch.int32, device=device),
            torch.ones(1, dtype=torch.int32, device=device),
        )
        """Nodes and count of a round that verifies the root alone."""

    # ---- stages

    def draft(self) -> None:
        """The drafter's marginals of the positions behind the root."""
        if self.draft_model is None:
            return
        assert self.draft_cache is not None
        place = self.place
        pending = None if place.pending is None else (place.pending, place.before)
        logits = self.draft_model.draft(
            place.root, self.draft_cache, place.length, pending=pending, max_length=self.max_length
        )
        # the kernels take what the model gives, unless that is float64
        self.logits = logits.float() if self.on_host or logits.dtype == torch.float64 else logits

    def build(self) -> None:
        """The tokens to verify: the root alone, the argmax chain, or the tree."""
        settings, root = self.settings, self.place.root
        if self.logits is None:
            self.tokens = root
        elif settings.trees and self.on_host:
            self.tree = host.tree_build(
                self.logits, root, settings.budget, settings.top_k, settings.spine, settings.draft_temperature
            )
            self.tokens = self.tree.tokens[0]
        elif settings.trees:
            self.tree = tree_build(
                self.logits[None],
                root,
                budget=settings.budget,
                top_k=settings.top_k,
                spine=settings.spine,
                temperature=settings.draft_temperature,
            )
            self.tokens = self.tree.tokens[0]
        else:
            self.tokens = highest(self.logits, root)

    def verify(self) -> None:
        """The target's own choice after every node."""
        length, tree = self.place.length, self.tree
        hidden, self.features = self.target.forward(
            self.tokens,
            None,
            self.cache,
            length,
            depths=None if tree is None else tree.depths[0],
            visibility=self.chain if tree is None else tree.visibility[0],
            features=self.draft_model is not None,
            max_length=self.max_length,
        )
        copy = None
        if self.settles and tree is not None:
            assert isinstance(length, torch.Tensor)
            copy = length, self.began
        self.chosen = self.choose(self.target.logits(hidden), copy)

    def accept(self) -> None:
        """The path on which the target agrees; its tokens, the bonus, and the figures of a shadow.

        A round that settles leaves this to its commit."""
        if self.settles:
            return
        chosen = self.chosen[None]
        if self.logits is None:
            self.accepted = Accepted(*self._alone, self.chosen)
        elif self.tree is None:
            self.accepted = linear_accept(self.tokens[None, 1:], chosen)
        else:
            self.accepted = tree_accept(self.tree, chosen, max_depth=self.block - 1)
        if self.settings.mode == "shadow-linear":
            walked, self.accepted = self.accepted, self._spine(chosen)
            self.figures = self._compare(walked)
        self._emit()

    def _emit(self) -> None:
        """The output row."""
        kept = self.accepted.nodes[0, : self.width].long().clamp(min=0)
        # the token chosen after an accepted node is the next node's, and after the last one the bonus
        torch.index_select(self.chosen, 0, kept, out=self.output[: self.width])
        count, figures = self.output[self.width :], self.figures
        count[:2] = self.accepted.counts
        if figures is not None:
            count[1:] = figures

    def _spine(self, chosen: torch.Tensor) -> Accepted:
        """What linear verification accepts: of the tree's spine, which is the chain of most probable children."""
        assert self.tree is not None
        spine = [torch.zeros(1, dtype=torch.int64, device=chosen.device)]
        for _ in range(self.block - 1):
            below = self.tree.first_child[0].long()[spine[-1]]
            spine.append(below.clamp(min=0))
        path = torch.cat(spine)
        chain = linear_accept(self.tree.tokens[:, path[1:]], chosen[:, path])
        step = torch.arange(self.block, device=chosen.device)
        nodes = torch.where(step < chain.counts[0], path, -1).int()
        return Accepted(nodes[None], chain.counts, chain.bonus)

    def _compare(self, walked: Accepted) -> torch.Tensor:
        """The shadow's figures: walked is what the tree commits, self.accepted the chain."""
        size = self.block
        same = (walked.nodes[0, :size] == self.accepted.nodes[0, :size]) | (self.accepted.nodes[0, :size] < 0)
        return torch.cat([walked.counts.long(), (~same.all()).long().reshape(1)])

    def commit(self) -> None:
        """Accepted rows of cache and features to the front, and the place moved behind them."""
        place, accepted = self.place, self.accepted
        if self.on_host:
            self._commit_on_host()
            return
        if self.settles:
            chain = None if self.logits is None else self.tokens
            finish(
                place,
                chain if self.tree is None else self.tree,
                self.chosen,
                self.features,
                self.cache,
                self.began,
                self.ring,
                self.width,
                shadow=self.settings.mode == "shadow-linear",
            )
            return
        if self.tree is not None:
            self.cache.commit(accepted, self._lengths())
            if self.features is not None:
                feature_commit(self.features[None], accepted)
        if self.static:
            assert isinstance(place.length, torch.Tensor) and isinstance(place.before, torch.Tensor)
            if self.features is not None and place.pending is not None:
                place.pending.copy_(self.features[: self.width])
            place.before.copy_(place.length)
            place.length.add_(accepted.counts)
            place.root.copy_(accepted.bonus)
            return
        assert isinstance(place.length, int)
        count = int(accepted.counts[0])
        pending = None if self.features is None else self.features[:count]
        self.place = Place(place.length + count, accepted.bonus, place.length, pending)

    def _commit_on_host(self) -> None:
        place, accepted = self.place, self.accepted
        assert isinstance(place.length, int)
        count = int(accepted.counts[0])
        features = self.features
        if self.tree is not None:
            nodes = accepted.nodes[0, :count].long()
            host.commit(self.cache, place.length, nodes)
            features = None if features is None else features[nodes]
        pending = None if features is None else features[:count]
        self.place = Place(place.length + count, accepted.bonus, place.length, pending)

    def _lengths(self) -> torch.Tensor:
        length = self.place.length
        return torch.tensor([length], device=self.target.device) if isinstance(length, int) else length

    def launches(self, stage: str) -> bool:
        """Whether this stage does anything on the device, in this mode."""
        if stage == "accept":
            return not self.settles
        return self.draft_model is not None or stage in ("verify", "commit")

    def run(self) -> None:
        """All stages. Then `row` is `width` tokens, of which the first `count` are new, and the figures."""
        for name in STAGES:
            getattr(self, name)()

    def row(self) -> list[int]:
        """The output row of the round queued last; waits for it."""
        if self.settles:
            return self.ring.last()
        found: list[int] = self.output.tolist()
        return found
