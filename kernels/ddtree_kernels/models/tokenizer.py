"""tokenizer.json through the tokenizers package, and ChatML for chats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtree_kernels.models.api import ModelError
from ddtree_kernels.models.libraries import library

NO_THOUGHT = "<think>\n\n</think>\n\n"


class Tokenizer:
    """See api.Tokenizer. `raw` is the tokenizers.Tokenizer, for streams (tokenizers.decoders.DecodeStream)."""

    def __init__(self, raw: Any) -> None:
        """Of a tokenizers.Tokenizer; vocab_size counts its highest id, not its entries."""
        self.raw = raw
        self.vocab_size: int = max(raw.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._thinks = raw.token_to_id("<think>") is not None

    def encode(self, text: str) -> list[int]:
        """See api.Tokenizer.encode."""
        return list(self.raw.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """See api.Tokenizer.decode."""
        return str(self.raw.decode(list(ids), skip_special_tokens=True))

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """See api.Tokenizer.chat; where the vocabulary knows <think>, an empty thought is given, as Qwen3 wants it."""
        turns = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in messages)
        return f"{turns}<|im_start|>assistant\n{NO_THOUGHT if self._thinks else ''}"


def load_tokenizer(path: Path | str, vocab_size: int | None = None) -> Tokenizer:
    """tokenizer.json of this folder. ModelError if it is missing, damaged, or has ids that the model does not know."""
    file = Path(path) / "tokenizer.json"
    if not file.exists():
        raise ModelError(f"{file} is missing: the model's folder must hold it")
    try:
        raw = library("tokenizers").Tokenizer.from_file(str(file))
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"{file} is no tokenizer: {error}") from error
    tokenizer = Tokenizer(raw)
    if vocab_size is not None and tokenizer.vocab_size > vocab_size:
        raise ModelError(
            f"{file} has token ids up to {tokenizer.vocab_size - 1}, the model's vocabulary is {vocab_size}"
        )
    return tokenizer
