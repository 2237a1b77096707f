"""One environment with its unit, and what the check says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddtree_console.hostside import check_cuda, check_env, check_model, env_cuda, env_launch, env_packages
from ddtree_console.hostside.check import cuda_from
from ddtree_console.hostside.check_finding import Finding
from ddtree_console.hostside.roots import Roots
from tests.hostside.env.fake import DRAFT, TARGET, Environment, model

UNIT = """[Service]
{user}WorkingDirectory=/
{env}ExecStart={python} -m sglang.launch_server --model-path {models}/target --speculative-algorithm DFLASH \\
    --speculative-draft-model-path {models}/draft --port 30000 {flags}
"""
DRIVER = ("580.95.05", "13.0")


class Case:
    """One environment with its unit; `look` is what the check of it says, by name."""

    def __init__(self, env: Environment, folder: Path) -> None:
        self.env, self.models = env, folder / "models"
        self.variables: dict[str, str] = {}
        self.user = ""
        self.flags = ""
        model(self.models / "target", TARGET)
        model(self.models / "draft", DRAFT, tokenizer=False)

    def target(self) -> env_launch.Target:
        lines = "".join(f'Environment="{k}={v}"\n' for k, v in self.variables.items())
        user = f"User={self.user}\n" if self.user else ""
        values = {"user": user, "env": lines, "python": self.env.python, "models": self.models, "flags": self.flags}
        return env_launch.target(Roots(), UNIT.format(**values))

    def look(self, arch: int | None = 90, driver: tuple[str, str] = DRIVER) -> dict[str, Mapping[str, Any]]:
        about = self.target()
        found: dict[str, Mapping[str, Any]] = {}
        for row in check_env.look(Roots(), about, "qwen"):
            if "finding" in row:
                found[row["finding"]["name"]] = row["finding"]
            else:
                cuda = cuda_from(row["facts"]["cuda"])
                found.update(rows(check_cuda.judge(cuda, about.env, [arch], *driver)))
        return found

    def cuda(self, arch: int | None = 90, driver: tuple[str, str] = DRIVER) -> dict[str, Mapping[str, Any]]:
        """The CUDA side alone, as this user: no interpreter is started."""
        path = [self.env.site_at]
        cuda = env_cuda.look(self.variables, "/", path, env_packages.installed(path))
        return rows(check_cuda.judge(cuda, self.variables, [arch], *driver))

    def pair(self) -> dict[str, Mapping[str, Any]]:
        """The models alone, as this user."""
        return rows(check_model.check(self.target(), {}))


def rows(found: Iterable[Finding]) -> dict[str, Mapping[str, Any]]:
    return {one.name: asdict(one) for one in found}


def said(found: Mapping[str, Mapping[str, Any]], name: str) -> tuple[str, str, str]:
    one = found[name]
    return one["state"], one["evidence"], one["remedy"]
