"""Qwen3 targets and DFlash drafters from Hugging Face folders, in plain torch and our ops. The contract: api.py."""

from ddtree_kernels.models.api import (
    DraftConfig,
    LayerShape,
    ModelError,
    Pair,
    TargetConfig,
)
from ddtree_kernels.models.cache import Cache
from ddtree_kernels.models.config import read_draft_config, read_target_config
from ddtree_kernels.models.dflash import DFlash, draft_names
from ddtree_kernels.models.loading import check_pair, load_draft, load_pair, load_target, weight_bytes_of
from ddtree_kernels.models.qwen3 import Qwen3, target_names
from ddtree_kernels.models.tokenizer import Tokenizer, load_tokenizer

__all__ = [
    "Cache",
    "DFlash",
    "DraftConfig",
    "LayerShape",
    "ModelError",
    "Pair",
    "Qwen3",
    "TargetConfig",
    "Tokenizer",
    "check_pair",
    "draft_names",
    "load_draft",
    "load_pair",
    "load_target",
    "load_tokenizer",
    "read_draft_config",
    "read_target_config",
    "target_names",
    "weight_bytes_of",
]
