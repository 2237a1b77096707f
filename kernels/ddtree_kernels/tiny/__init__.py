"""A small real pair, Qwen3 target and DFlash drafter, trained on text that is made here. README.md: how, how good."""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """The folder with target/ and draft/, each as a Hugging Face checkpoint."""
    return Path(__file__).parent / "pair"
