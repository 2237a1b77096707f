"""Trains the tiny pair: `python -m ddtree_kernels.tiny.train --work FOLDER [--device cuda]`. Seeded, resumable.

Stages, each skipped when its result is in the work folder: tokenizer, target (on the generated text), rollouts (what
the trained target writes behind prompts), draft (on the target's features of them), export (the folder that ships).
A checkpoint is written every minute and the same command goes on from it; what a step does depends on its number alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from ddtree_kernels.models.config import draft_config, target_config
from ddtree_kernels.models.dflash import draft_names
from ddtree_kernels.models.libraries import library
from ddtree_kernels.models.qwen3 import Qwen3, target_names
from ddtree_kernels.tiny.batched import Weights, draft_forward, fresh, target_forward
from ddtree_kernels.tiny.rollouts import continuations
from ddtree_kernels.tiny.shapes import DRAFT, TARGET
from ddtree_kernels.tiny.text import as_text, examples
from ddtree_kernels.tiny.vocabulary import train_tokenizer

SEED = 1
HERE = Path("shapes.py")
TARGET_CONFIG = target_config(TARGET, HERE)
DRAFT_CONFIG = draft_config(DRAFT, HERE)
ROLLOUT_STEPS = 224


def rate(step: int, steps: int) -> float:
    """Share of the peak rate: up over the first 2 %, flat, and down to a hundredth over the last 40 %."""
    warm = max(1, steps // 50)
    return min(1.0, (step + 1) / warm, max(0.01, (steps - step) / (0.4 * steps)))


class Optimizer:
    """Muon for the layers' matrices, AdamW for embedding and norms. Muon needs about half of AdamW's steps here."""

    def __init__(self, weights: Weights, peak: float) -> None:
        """Over all weights; peak is Muon's highest rate, in AdamW's scale."""
        matrices = [tensor for name, tensor in weights.items() if tensor.dim() > 1 and "embed" not in name]
        rest = [tensor for name, tensor in weights.items() if tensor.dim() == 1 or "embed" in name]
        self.parts = [
            (torch.optim.Muon(matrices, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"), peak),
            (torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0), 4e-3),
        ]

    def step(self, share: float) -> None:
        """One step at this share of the peak rates; gradients are dropped."""
        for part, peak in self.parts:
            for group in part.param_groups:
                group["lr"] = peak * share
            part.step()
            part.zero_grad(set_to_none=True)

    def state(self) -> list[Any]:
        """For a checkpoint."""
        return [part.state_dict() for part, _ in self.parts]

    def restore(self, states: list[Any]) -> None:
        """From a checkpoint."""
        for (part, _), state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def save(path: Path, what: Any) -> None:
    """torch.save in one step: an interrupted run leaves the older file whole."""
    torch.save(what, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def fit(
    name: str,
    work: Path,
    weights: Weights,
    steps: int,
    peak: float,
    loss_of: Callable[[int], torch.Tensor],
    save_after: float = 60.0,
) -> None:
    """Runs the steps that the checkpoint has not seen; loss_of(step) must depend on the step's number alone."""
    checkpoint, log = work / f"{name}.pt", work / f"{name}.log"
    optimizer, first = Optimizer(weights, peak), 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location=next(iter(weights.values())).device)
        first = int(kept["step"])
        for key, tensor in weights.items():
            tensor.data.copy_(kept["weights"][key])
        optimizer.restore(kept["optimizer"])
    started = saved = time.monotonic()
    running: list[float] = []
    for step in range(first, steps):
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step(rate(step, steps))
        running.append(float(loss.detach()))
        now = time.monotonic()
        if (step + 1) % 25 == 0 or step + 1 == steps:
            line = f"{name} step {step + 1}/{steps} loss {sum(running) / len(running):.4f} {now - started:.0f} s"
            print(line, flush=True)
            with log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            running = []
        if now - saved > save_after or step + 1 == steps:
            plain = {key: tensor.data for key, tensor in weights.items()}
            save(checkpoint, {"step": step + 1, "weights": plain, "optimizer": optimizer.state()})
            saved = now


def packed(tokenizer: Any, seed: str, length: int) -> Iterator[list[int]]:
    """Endless token rows of this length: whole documents one behind the other, the last one cut."""
    rng, row = random.Random(f"{seed} form"), list[int]()
    for example in examples(seed):
        row += tokenizer.encode("".join(as_text(example, chat=rng.random() < 0.5))).ids
        if len(row) >= length:
            yield row[:length]
            row = []


def train_target(work: Path, tokenizer: Any, device: str, steps: int, batch: int, length: int) -> Weights:
    """The target's weights after all steps: cross-entropy of the next token on the generated text."""
    weights = fresh(target_names(TARGET_CONFIG), TARGET_CONFIG.shape.num_hidden_layers, SEED, device)

    def loss_of(step: int) -> torch.Tensor:
        rows = list(islice(packed(tokenizer, f"target {SEED} {step}", length + 1), batch))
        tokens = torch.tensor(rows, device=device)
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            logits, _ = target_forward(weights, TARGET_CONFIG, tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    fit("target", work, weights, steps, 6e-3, loss_of)
    return {key: tensor.detach() for key, tensor in weights.items()}


def rollout_batches(
    target: Qwen3, tokenizer: Any, batches: int, size: int, seed: str
) -> Iterator[tuple[torch.Tensor, int]]:
    """(tokens [size, S], prompt length): prompts of one length; three of four continued greedily, one sampled."""
    rng, waiting = random.Random(f"{seed} form"), dict[int, list[list[int]]]()
    generator = torch.Generator().manual_seed(int.from_bytes(random.Random(seed).randbytes(6), "big"))
    warm = torch.tensor([1.0 if i % 4 == 3 else 0.0 for i in range(size)])
    for example in examples(seed):
        if batches == 0:
            return
        prompt = tokenizer.encode(as_text(example, chat=rng.random() < 0.5)[0]).ids
        group = waiting.setdefault(len(prompt), [])
        group.append(prompt)
        if len(group) == size:
            yield (
                continuations(target, torch.tensor(group, device=target.device), ROLLOUT_STEPS, warm, generator),
                len(prompt),
            )
            waiting[len(prompt)], batches = [], batches - 1


def make_rollouts(work: Path, target: Qwen3, tokenizer: Any, batches: int, size: int) -> list[tuple[torch.Tensor, int]]:
    """All training text of the drafter, from the work folder when it is there."""
    file = work / "rollouts.pt"
    if not file.exists():
        started, made = time.monotonic(), []
        for tokens, prompt in rollout_batches(target, tokenizer, batches, size, f"rollouts {SEED}"):
            made.append((tokens.to(torch.int16).cpu(), prompt))
            if len(made) % 10 == 0:
                print(f"rollouts {len(made)}/{batches} {time.monotonic() - started:.0f} s", flush=True)
        save(file, made)
    return [(tokens.long(), prompt) for tokens, prompt in torch.load(file)]


def train_draft(
    work: Path, target: Weights, made: list[tuple[torch.Tensor, int]], device: str, steps: int, batch: int, blocks: int
) -> Weights:
    """The drafter's weights: cross-entropy of every drafted position, nearer ones counting more (DFlash's decay)."""
    weights = fresh(draft_names(DRAFT_CONFIG), DRAFT_CONFIG.shape.num_hidden_layers, SEED + 1, device)
    embedding = target["model.embed_tokens.weight"]
    head = target.get("lm_head.weight", embedding)
    block, stops = DRAFT_CONFIG.block_size, torch.tensor(TARGET_CONFIG.stop_ids)
    decay = torch.exp(-torch.arange(block - 1, device=device) / 7.0)

    def loss_of(step: int) -> torch.Tensor:
        rng = random.Random(f"draft {SEED} {step}")
        tokens, prompt = rng.choice(made)
        tokens = tokens[torch.tensor(rng.sample(range(len(tokens)), min(batch, len(tokens))))]
        ends = torch.isin(tokens[:, prompt:], stops).int()
        last = torch.where(ends.any(1), ends.argmax(1), ends.shape[1] - 1) + prompt  # the stop token's place
        picks = [[rng.randrange(prompt, max(prompt + 1, int(end))) for _ in range(blocks)] for end in last]
        anchors = torch.tensor(picks)
        used = int(last.max()) + 1
        want = anchors[..., None] + torch.arange(1, block)
        real = (want <= last[:, None, None]).to(device)
        tokens = F.pad(tokens, (0, block))
        rows = torch.arange(len(tokens))[:, None]
        roots, wanted = tokens[rows, anchors].to(device), tokens[rows[..., None], want].to(device)
        with torch.no_grad():
            _, features = target_forward(target, TARGET_CONFIG, tokens[:, :used].to(device), DRAFT_CONFIG.layer_ids)
        with torch.autocast(features.device.type, dtype=torch.bfloat16):
            logits = draft_forward(weights, DRAFT_CONFIG, features, roots, anchors.to(device), embedding, head)
        losses = F.cross_entropy(logits.flatten(0, 2).float(), wanted.flatten(), reduction="none").view_as(wanted)
        share = decay * real
        return (losses * share).sum() / share.sum().clamp(min=1.0)

    fit("draft", work, weights, steps, 6e-3, loss_of)
    return {key: tensor.detach() for key, tensor in weights.items()}


def export(work: Path, tokenizer: Any, target: Weights, draft: Weights) -> Path:
    """Writes the pair as two Hugging Face folders, bf16, and gives their parent."""
    packed_bytes = library("safetensors.torch").save  # save_file would make it unreadable for a service's user
    out = work / "pair"
    for name, weights, config in (("target", target, TARGET), ("draft", draft, DRAFT)):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {key: tensor.to("cpu", torch.bfloat16).contiguous() for key, tensor in weights.items()}
        (folder / "model.safetensors").write_bytes(packed_bytes(tensors, metadata={"format": "pt"}))
        (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    stops = {"eos_token_id": TARGET["eos_token_id"], "bos_token_id": TARGET["bos_token_id"]}
    (out / "target" / "generation_config.json").write_text(json.dumps(stops, indent=2) + "\n", encoding="utf-8")
    tokenizer.save(str(out / "target" / "tokenizer.json"))
    return out


def main(arguments: list[str] | None = None) -> int:
    """The command; 0 when all stages are done."""
    parser = argparse.ArgumentParser(prog="python -m ddtree_kernels.tiny.train", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoints, logs and the exported pair")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--target-steps", type=int, default=4000)
    parser.add_argument("--target-batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rollouts", type=int, default=160, help="batches of prompts")
    parser.add_argument("--rollout-size", type=int, default=128, help="prompts of a batch")
    parser.add_argument("--draft-steps", type=int, default=4000)
    parser.add_argument("--draft-batch", type=int, default=32)
    parser.add_argument("--blocks", type=int, default=12, help="blocks of one text in one step")
    parser.add_argument("--until", choices=("tokenizer", "target", "rollouts", "draft", "export"), default="export")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    options.work.mkdir(parents=True, exist_ok=True)
    file = options.work / "tokenizer.json"
    if not file.exists():
        train_tokenizer().save(str(file))
    tokenizer = library("tokenizers").Tokenizer.from_file(str(file))
    stages = ("tokenizer", "target", "rollouts", "draft", "export")
    wanted = stages[1 : stages.index(options.until) + 1]
    target: Weights = {}
    made: list[tuple[torch.Tensor, int]] = []
    draft: Weights = {}
    for stage in wanted:
        if stage == "target":
            target = train_target(
                options.work, tokenizer, options.device, options.target_steps, options.target_batch, options.length
            )
        elif stage == "rollouts":
            # the drafter meets the target as it is shipped
            target = {key: tensor.bfloat16().to(tensor.dtype) for key, tensor in target.items()}
            served = Qwen3(TARGET_CONFIG, target)
            made = make_rollouts(options.work, served, tokenizer, options.rollouts, options.rollout_size)
        elif stage == "draft":
            draft = train_draft(
                options.work, target, made, options.device, options.draft_steps, options.draft_batch, options.blocks
            )
        else:
            print(export(options.work, tokenizer, target, draft))
    return 0


if __name__ == "__main__":
    sys.exit(main())
