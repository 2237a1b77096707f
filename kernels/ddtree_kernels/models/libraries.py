"""Packages of the `serve` extra that only reading and writing of files needs, loaded on use."""

from __future__ import annotations

import importlib
from types import ModuleType

from ddtree_kernels.models.api import ModelError


def library(name: str) -> ModuleType:
    """The module; ModelError that names the extra where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"{name} cannot be imported ({error}): pip install 'ddtree-console[serve]'") from error
