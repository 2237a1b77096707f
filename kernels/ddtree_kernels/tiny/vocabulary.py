"""The tiny pair's tokenizer: byte-level BPE, digits one by one, trained on the generated text."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ddtree_kernels.models.libraries import library
from ddtree_kernels.tiny.text import as_text, examples

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
SIZE = 512


def train_tokenizer(size: int = SIZE, documents: int = 4000, seed: str = "vocabulary") -> Any:
    """A tokenizers.Tokenizer of `size` entries; the special tokens are 0 to 3."""
    tokenizers = library("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    split, byte_level = tokenizers.pre_tokenizers.Digits(individual_digits=True), tokenizers.pre_tokenizers.ByteLevel
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, byte_level(add_prefix_space=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(SPECIAL), initial_alphabet=byte_level.alphabet(), show_progress=False
    )
    texts = ("".join(as_text(example, chat=False)) for example in islice(examples(seed), documents))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
