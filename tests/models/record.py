"""What transformers says of the cases: `python -m tests.models.record` writes recorded.json (needs transformers)."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import torch

from ddtree_kernels.models import target_names
from ddtree_kernels.models.config import target_config
from tests.models.cases import TARGETS, TOKENS, weights_of

FILE = Path(__file__).parent / "recorded.json"


def ask_transformers(raw: dict[str, Any]) -> dict[str, list[list[float]]]:
    """Logits and hidden states (after the embedding and after each layer but the last) of TOKENS, in float64."""
    transformers = importlib.import_module("transformers")
    known = {key: value for key, value in raw.items() if key not in ("architectures", "model_type")}
    config = transformers.Qwen3Config(**known, attn_implementation="eager")
    model = transformers.Qwen3ForCausalLM(config).double().eval()
    weights = weights_of(target_names(target_config(raw, Path("config.json"))))
    model.load_state_dict(weights, strict=not raw["tie_word_embeddings"])
    with torch.no_grad():
        out = model(torch.tensor([TOKENS]), output_hidden_states=True)
    states = torch.cat(out.hidden_states[1:-1], dim=-1)
    return {"logits": out.logits[0].tolist(), "states": states[0].tolist()}


def main() -> None:
    """Writes the file, numbers to seven places."""
    transformers = importlib.import_module("transformers")
    cases = {name: ask_transformers(raw) for name, raw in TARGETS.items()}
    rounded = {
        name: {key: [[round(value, 7) for value in row] for row in rows] for key, rows in case.items()}
        for name, case in cases.items()
    }
    said = {"transformers": transformers.__version__, "torch": torch.__version__, "cases": rounded}
    FILE.write_text(json.dumps(said, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
