"""Folders: whole and sharded, tied and untied; every damage and mismatch is one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ddtree_kernels.models import (
    Cache,
    ModelError,
    draft_names,
    load_draft,
    load_pair,
    load_target,
    load_tokenizer,
    target_names,
    weight_bytes_of,
)
from ddtree_kernels.models.config import draft_config, target_config
from ddtree_kernels.models.libraries import library
from tests.models.cases import DRAFT, PLAIN, TARGETS, TOKENS, weights_of, write_model

FILE = Path("config.json")


def target_folder(folder: Path, raw: dict[str, Any] = PLAIN, shards: int = 1) -> Path:
    """A target on disk, float32."""
    weights = weights_of(target_names(target_config(raw, FILE)))
    return write_model(folder, raw, {name: tensor.float() for name, tensor in weights.items()}, shards)


def draft_folder(folder: Path, raw: dict[str, Any] = DRAFT, shards: int = 1) -> Path:
    """A draft on disk, float32."""
    weights = weights_of(draft_names(draft_config(raw, FILE)))
    return write_model(folder, raw, {name: tensor.float() for name, tensor in weights.items()}, shards)


def write_tokenizer(folder: Path, entries: int) -> None:
    """A tokenizer.json of so many one-letter words."""
    tokenizers = library("tokenizers")
    words = {chr(97 + i): i for i in range(entries)}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocab=words, merges=[])).save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", ["untied", "tied, one key head, biases"])
def test_loaded_weights_are_those_written(tmp_path: Path, name: str, shards: int) -> None:
    raw = TARGETS[name]
    target = load_target(target_folder(tmp_path / "m", raw, shards), dtype=torch.float64)
    weights = weights_of(target_names(target.config))
    assert torch.equal(target.embedding, weights["model.embed_tokens.weight"].float().double())
    assert (target.head is target.embedding) == raw["tie_word_embeddings"]
    rows = [weights[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(target.layers[1].qkv, torch.cat(rows).float().double())
    assert target.weight_bytes() == 8 * sum(tensor.numel() for tensor in weights.values())
    assert weight_bytes_of(tmp_path / "m", torch.float64) == target.weight_bytes()
    assert weight_bytes_of(tmp_path / "m") == target.weight_bytes() // 2


def test_a_tied_model_may_carry_its_head_again(tmp_path: Path) -> None:
    raw = TARGETS["tied, one key head, biases"]
    weights = weights_of(target_names(target_config(raw, FILE)))
    head = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    target = load_target(write_model(tmp_path / "m", raw, weights | head))
    assert target.head is target.embedding


def test_a_pair_in_one_folder(tmp_path: Path) -> None:
    target_folder(tmp_path / "pair" / "target", shards=2)
    draft_folder(tmp_path / "pair" / "draft", shards=2)
    write_tokenizer(tmp_path / "pair" / "target", 20)
    pair = load_pair(tmp_path / "pair")
    assert pair.draft is not None
    assert pair.target.layer_ids == (0, 1)
    assert pair.tokenizer.encode("bad") == [1, 0, 3]
    cache, own = Cache(pair.target.config.shape, 20), Cache(pair.draft.config.shape, 20)
    _, features = pair.target.forward(torch.tensor(TOKENS), torch.arange(12), cache, 0)
    assert features is not None
    pair.draft.extend(features, own, 0)
    assert pair.draft.draft(torch.tensor([5]), own, 12).shape == (4, 48)
    assert load_pair(tmp_path / "pair", with_draft=False).draft is None
    assert load_pair(tmp_path / "pair" / "target", tmp_path / "pair" / "draft").draft is not None


def cut(file: Path, keep: int) -> None:
    """Leaves the first `keep` bytes."""
    file.write_bytes(file.read_bytes()[:keep])


def put(file: Path, text: str) -> None:
    """Writes the text in the file's place."""
    file.write_text(text, encoding="utf-8")


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Writes the target's weights changed."""
    weights = weights_of(target_names(target_config(PLAIN, FILE)))
    write_model(folder, PLAIN, change(weights))


NORM = "model.norm.weight"
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no weights": (lambda m: (m / "model.safetensors").unlink(), "holds neither model.safetensors nor"),
    "cut in the data": (lambda m: cut(m / "model.safetensors", 9000), "truncated or no safetensors file (9000 bytes"),
    "cut in the header": (lambda m: cut(m / "model.safetensors", 100), "truncated or no safetensors file (100 bytes"),
    "empty": (lambda m: cut(m / "model.safetensors", 0), "truncated or no safetensors file (0 bytes"),
    "no safetensors": (lambda m: put(m / "model.safetensors", "x" * 999), "no safetensors file"),
    "a tensor less": (
        lambda m: rewrite(m, lambda w: {k: v for k, v in w.items() if k != NORM}),
        f"tensor {NORM} missing",
    ),
    "a tensor more": (lambda m: rewrite(m, lambda w: {**w, "model.x": torch.ones(2)}), "tensor model.x belongs to no"),
    "a tensor of another size": (
        lambda m: rewrite(m, lambda w: {**w, NORM: torch.ones(31)}),
        f"tensor {NORM} is [31], config.json says [32]",
    ),
    "a vocabulary less": (
        lambda m: put(m / "config.json", json.dumps(PLAIN | {"vocab_size": 50})),
        "is [48, 32], config.json says [50, 32]",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_line_that_names_the_place(tmp_path: Path, damage: str) -> None:
    folder = target_folder(tmp_path / "model")
    harm, says = DAMAGES[damage]
    harm(folder)
    with pytest.raises(ModelError) as caught:
        load_target(folder)
    assert says in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_shard(tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "model", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-00003.safetensors is missing, but .* lists it"):
        load_target(folder)


def test_a_shard_outside_its_folder(tmp_path: Path) -> None:
    folder = target_folder(tmp_path / "model", shards=3)
    index = {"weight_map": {NORM: "../else.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="outside its folder"):
        load_target(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": 64}, "its hidden size is 64, the target's 32"),
        ({"vocab_size": 151936}, "its vocabulary is 151936, the target's 48"),
        ({"num_target_layers": 36}, "it expects 36 target layers, the target has 3"),
        (
            {"dflash_config": {"mask_token_id": 47, "target_layer_ids": [1, 9]}},
            "it reads target layer 9, the target",
        ),
        (
            {"dflash_config": {"mask_token_id": 48, "target_layer_ids": [1]}},
            "its mask token 48 is outside the",
        ),
    ],
)
def test_a_draft_of_another_target(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    target = load_target(target_folder(tmp_path / "target"))
    folder = tmp_path / "draft"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DRAFT | change))
    with pytest.raises(ModelError) as caught:
        load_draft(folder, target)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(folder))
    assert target.layer_ids == ()


def test_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model at"):
        load_pair(tmp_path / "nowhere")
    target_folder(tmp_path / "pair" / "target")
    with pytest.raises(ModelError, match="has no draft beside it"):
        load_pair(tmp_path / "pair")
    with pytest.raises(ModelError, match="no draft at"):
        load_draft(tmp_path / "nowhere", load_target(tmp_path / "pair" / "target"))


def test_tokenizers_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer.json is missing"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is no tokenizer"):
        load_tokenizer(tmp_path)
    write_tokenizer(tmp_path, 20)
    assert load_tokenizer(tmp_path, 20).vocab_size == 20
    with pytest.raises(ModelError, match="token ids up to 19, the model's vocabulary is 12"):
        load_tokenizer(tmp_path, 12)


def test_chat_knows_whether_the_model_thinks(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 3)
    tokenizer = load_tokenizer(tmp_path)
    turns = [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    plain = "<|im_start|>system\nbe short<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.chat(turns) == plain
    tokenizer.raw.add_special_tokens(["<think>"])
    tokenizer.raw.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).chat(turns) == plain + "<think>\n\n</think>\n\n"


def test_a_missing_package_is_named() -> None:
    with pytest.raises(
        ModelError, match=r"no_such_package cannot be imported .* pip install 'ddtree-console\[serve\]'"
    ):
        library("no_such_package")
