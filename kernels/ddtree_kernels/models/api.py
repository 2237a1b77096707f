"""What decoding sees of the models: names, shapes and meanings. Bodies: qwen3.py, dflash.py, cache.py, loading.py.

One request at a time (batch 1), so no tensor here has a batch dimension; n, m and T count rows. A *row* is a slot of
the static cache, a *position* what RoPE is given; for a chain they are equal, in a tree siblings share a position.

A round, with `length` committed rows in both caches and the bonus token `root` chosen but not yet run (it will be row
`length`, at position `length`):

    draft.extend(features, draft_cache, before)        # features of the rows committed last: before .. length-1
    logits = draft.draft(root, draft_cache, length)    # [block-1, V], row i is the marginal of position length+1+i
                                                       # (draft does both, given pending=(features, before))
    tree = tree_build(logits[None], root, budget=B)   # node 0 is the root
    hidden, features = target.forward(tree.tokens[0], None, cache, length, depths=tree.depths[0],
                                      visibility=tree.visibility[0])
    accepted = tree_accept(tree, target_logits=target.logits(hidden)[None], max_depth=block-1)
    cache.commit(accepted, lengths)                    # lengths [1]: accepted rows moved to length, length+1 ...
    feature_commit(features[None], accepted)           # likewise: the next extend takes the first rows
    length += accepted.counts[0]

`start` and `length` are Python ints, or int64 tensors [1] on the device: then nothing waits for the host and the whole
round may be captured in a CUDA graph. extend may be given more rows than were accepted (a fixed number, under a graph):
the next draft writes its block over the rest, and nothing beyond `length + block` is ever read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from ddtree_kernels.ops.kv_commit import KvTable
    from ddtree_kernels.ops.tree_accept import Accepted


class ModelError(Exception):
    """A model cannot be loaded or a pair does not fit: one line that names the file, the cause and what to do."""


@dataclass(frozen=True)
class Rope:
    """Rotary embedding: base, and the scaling of config.json ("default", "linear" or "yarn")."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    original_length: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0


@dataclass(frozen=True)
class LayerShape:
    """The sizes of one decoder stack, as both models have it; named as in config.json."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: Rope
    attention_bias: bool
    max_position_embeddings: int
    windows: tuple[int | None, ...]  # per layer: sliding window in tokens, None = all

    def kv_bytes(self, element: int) -> int:
        """Bytes of one token's keys and values in all layers, at `element` bytes a number."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim * element


@dataclass(frozen=True)
class TargetConfig:
    """What Qwen3's config.json says. stop_ids: every eos id of config.json and generation_config.json."""

    shape: LayerShape
    vocab_size: int
    tied: bool
    stop_ids: tuple[int, ...]
    architecture: str


@dataclass(frozen=True)
class DraftConfig:
    """What a DFlash config.json says. layer_ids: target layers (0-based) whose outputs are the features, in order."""

    shape: LayerShape
    vocab_size: int
    block_size: int
    mask_token_id: int
    layer_ids: tuple[int, ...]
    target_layers: int


class Cache(Protocol):
    """Static keys and values of one stack: `ddtree_kernels.models.Cache(config.shape, rows, device, dtype)`.

    keys, values  per layer [1, rows, Hkv, D], views of one allocation; never moved, so graphs may hold their addresses
    """

    rows: int
    keys: tuple[torch.Tensor, ...]
    values: tuple[torch.Tensor, ...]

    @property
    def table(self) -> KvTable:
        """All layers' keys, then values; made on first use, so touch it before a graph is captured."""

    def check(self, start: int | torch.Tensor, count: int) -> None:
        """ValueError where an int start has no room for so many rows."""

    def write(self, layer: int, start: int | torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Puts keys and values [n, Hkv, D] into rows start .. start+n-1; ValueError where an int start has no room."""

    def commit(self, accepted: Accepted, lengths: torch.Tensor) -> None:
        """kv_commit of all layers: accepted rows move to lengths [1], lengths + 1 ... No host synchronisation."""


class Target(Protocol):
    """Qwen3. `device` and `dtype` are the weights'; layer_ids chooses the features, () until set by pairing."""

    config: TargetConfig
    device: torch.device
    dtype: torch.dtype
    layer_ids: tuple[int, ...]

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor | None,
        cache: Cache,
        start: int | torch.Tensor,
        *,
        depths: torch.Tensor | None = None,
        visibility: torch.Tensor | None = None,
        features: bool = True,
        max_length: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Runs n tokens as rows start .. start+n-1 of the cache, after the rows before start.

        Args:
            tokens: [n] int64 or int32; below 0 is padding, whose result means nothing.
            positions: [n] int64 or int32, None = by depths.
            depths: [n] int64 or int32 instead, positions behind start; None = 0, 1 ...
            visibility: [n, >= ceil(n/64)] int64 words as DraftTree's; None = a chain, each row sees those before it.
                A row without any bit (padding) sees the context and itself; its result means nothing.
            features: whether features are wanted.
            max_length: the most rows (start + n) a captured graph will ever see; only chooses splits.
        Returns:
            hidden [n, H] after the last norm, and features [n, len(layer_ids) * H] or None: the outputs of the
            layers in layer_ids side by side, before the last norm. The features are the caller's to change.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[n, V] in the weights' type from hidden [n, H]."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """[n, H] of tokens [n]."""

    def weight_bytes(self) -> int:
        """Bytes of all weights on the device."""


class Draft(Protocol):
    """DFlash: a block of mask tokens behind the root, conditioned on the target's features; its embedding and head."""

    config: DraftConfig
    device: torch.device
    dtype: torch.dtype

    @property
    def block_size(self) -> int:
        """The root and block_size - 1 drafted positions."""

    def extend(self, features: torch.Tensor, cache: Cache, start: int | torch.Tensor) -> None:
        """Writes the context keys and values of features [m, len(layer_ids) * H] as rows (and positions) start ..
        start+m-1 of the draft's cache. Rows that were not accepted may follow those that were."""

    def draft(
        self,
        root: torch.Tensor,
        cache: Cache,
        length: int | torch.Tensor,
        *,
        pending: tuple[torch.Tensor, int | torch.Tensor] | None = None,
        max_length: int | None = None,
    ) -> torch.Tensor:
        """Logits [block-1, V] of the positions behind root [1], which stands at position length.

        pending: features and start, as for extend: the context rows that the cache still lacks, written on the way.

        Sees the first `length` rows of the cache; the block's own keys and values go to rows length .. length+block-1
        and are overwritten by the next extend.
        """

    def weight_bytes(self) -> int:
        """Bytes of the draft's own weights (embedding and head are the target's)."""


class Tokenizer(Protocol):
    """tokenizer.json through the tokenizers package."""

    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Token ids, special tokens in the text recognised, nothing added."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text, special tokens left out; bytes that are no UTF-8 (yet) become U+FFFD."""

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt text of chat messages ({"role", "content"}), ChatML as Qwen3's template without thinking."""


@dataclass(frozen=True)
class Pair:
    """A loaded target with its tokenizer and, unless only autoregressive decoding is wanted, its draft."""

    target: Target
    draft: Draft | None
    tokenizer: Tokenizer
    path: Path


# In ddtree_kernels.models (all raise ModelError):
#   load_target(path, device="cpu", dtype=torch.float32) -> Qwen3
#   load_draft(path, target, device="cpu", dtype=torch.float32) -> DFlash    sets target.layer_ids
#   load_tokenizer(path, vocab_size=None) -> Tokenizer
#   load_pair(path, draft=None, *, device, dtype, with_draft=True) -> Pair   path: "tiny", a folder with target/ and
#                                                                          draft/, or a target's with draft given
#   read_target_config(path), read_draft_config(path) -> config              no weights read: for sizing before binding
#   weight_bytes_of(path, dtype) -> int                                      from the safetensors headers alone
# ddtree_kernels.tiny.path() -> Path is the shipped pair's folder.
