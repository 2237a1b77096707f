"""Libraries that are built once, and an environment that each test may break."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostside.env.case import Case
from tests.hostside.env.fake import Environment, Libraries


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Built once."""
    return Libraries(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def env(tmp_path: Path, libraries: Libraries) -> Environment:
    """An empty virtual environment."""
    return Environment(Path("/"), str(tmp_path / "env"), libraries)


@pytest.fixture
def good(env: Environment, tmp_path: Path) -> Case:
    """An environment in which everything is as it should be."""
    env.torch("2.9.1", "12.8")
    env.kernel()
    env.sglang("0.5.12")
    return Case(env, tmp_path)
