"""All three declaration styles, forks, a plug-in and broken sources, read from small trees on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import inspect_engine
from ddtree_console.hostside.inspect_source import Sources
from tests.builds import trees


def read(
    files: dict[str, str], where: Path, plugins: tuple[str, ...] = ()
) -> tuple[dict[str, dict[str, Any]], Sources]:
    sources = Sources([str(trees.write(files, where))])
    found = inspect_engine.flags(sources, "sglang", plugins)
    sources.problems += found["problems"]
    return {row["name"]: row for row in found["flags"]}, sources


def test_plain_add_argument(tmp_path: Path) -> None:
    flags, sources = read(trees.PLAIN, tmp_path)
    assert sources.problems == []
    assert flags["model-path"]["aliases"] == ["model"] and flags["model-path"]["help"] == "where the weights are"
    assert flags["host"]["default"] == "127.0.0.1" and flags["host"]["kind"] == "str"
    assert flags["port"]["default"] == 30000 and flags["port"]["kind"] == "int"
    assert flags["mem-fraction-static"]["kind"] == "float" and flags["mem-fraction-static"]["default"] is None
    assert flags["sizes"]["kind"] == "list" and flags["sizes"]["default"] == [1, 2]
    assert flags["attention-backend"]["choices"] == ["triton", "fa3", "flashinfer"]
    assert flags["tp-size"]["aliases"] == ["tensor-parallel-size", "-tp"] and flags["tp-size"]["default"] == 1
    assert flags["disable-cuda-graph"]["kind"] == "bool" and flags["disable-cuda-graph"]["default"] is False
    assert flags["cuda-graph-max-bs"]["default"] == 8
    assert flags["fused"]["kind"] == "bool" and flags["fused"]["aliases"] == ["no-fused"]
    assert flags["enable-flashmla"]["refused"] and flags["enable-flashmla"]["instead"] == "attention-backend"
    assert {"decode-attention", "prefill-attention", "help"} <= flags.keys()
    line = flags["host"]["file"].rpartition(":")
    text = Path(line[0]).read_text().splitlines()[int(line[2]) - 1]
    assert "--host" in text


@pytest.mark.parametrize("tree", [trees.ANNOTATED, trees.NAMESPACES], ids=["annotated", "namespaces"])
def test_annotated_fields(tree: dict[str, str], tmp_path: Path) -> None:
    flags, sources = read(tree, tmp_path)
    assert sources.problems == []
    assert flags["model-path"]["aliases"] == ["model"]
    assert (flags["host"]["help"], flags["host"]["default"]) == ("The host.", "127.0.0.1")
    assert flags["tensor-parallel-size"]["aliases"] == ["tp-size"] and "tp-size" not in flags
    assert (flags["context-length"]["kind"], flags["context-length"]["default"]) == ("size", None)
    assert flags["dtype"]["choices"] == ["auto", "bfloat16"]
    assert flags["load-format"]["choices"] == ["auto", "safetensors"]
    assert (flags["buckets"]["kind"], flags["buckets"]["default"]) == ("list", [0.5])
    assert flags["fused"]["aliases"] == ["no-fused"] and flags["enable-metrics"]["kind"] == "bool"
    assert flags["cuda-graph-backend-prefill"]["choices"] == ["full", "disabled"]
    assert flags["cuda-graph-max-bs-decode"]["kind"] == "int"
    assert "internal" not in flags
    # no_cli fields that are registered by hand: their defaults are the fields'
    assert flags["sampling-backend"]["default"] == "pytorch"
    assert flags["sampling-backend"]["choices"] == ["flashinfer", "pytorch"]
    assert flags["disable-cuda-graph"]["kind"] == "bool" and flags["disable-cuda-graph"]["deprecated"]
    assert flags["mamba-scheduler-strategy"]["instead"] == "mamba-radix-cache-strategy"
    assert flags["mamba-scheduler-strategy"]["kind"] == "str"
    # a module that is handed the parser
    assert flags["more-of-it"]["kind"] == "int"


def tree_of(files: dict[str, str], where: Path, plugins: tuple[str, ...] = ()) -> tuple[list[str], dict[str, Any]]:
    flags, sources = read(files, where, plugins)
    rows = list(flags.values())
    known = inspect_engine.algorithms(sources, "sglang", rows, plugins)
    return known, inspect_engine.ddtree(sources, "sglang", rows, known, "")


def test_a_fork_with_its_own_algorithm(tmp_path: Path) -> None:
    known, found = tree_of(trees.PR29907, tmp_path)
    assert "DDTREE" in known
    flags, files = ["speculative-ddtree-budget"], ["ddtree_worker.py"]
    assert found == {"algorithm": "DDTREE", "flags": flags, "files": files}


def test_a_fork_with_a_switch_in_a_module_of_its_own(tmp_path: Path) -> None:
    _, found = tree_of(trees.DB_GUO, tmp_path)
    assert found == {"algorithm": "DFLASH", "flags": ["speculative-dflash-enable-ddtree"], "files": []}


def test_a_plug_in_registers_an_algorithm_and_a_flag(tmp_path: Path) -> None:
    files = {**trees.PLAIN, **trees.PLUGIN}
    known, found = tree_of(files, tmp_path, ("ddtree_plugin.entry",))
    assert known == ["DFLASH", "EAGLE", "NEXTN", "DDTREE"]
    assert found["algorithm"] == "DDTREE" and found["flags"] == ["ddtree-report"]
    flags, sources = read(files, tmp_path, ("ddtree_plugin.entry",))
    assert any(path.endswith("tool.py") for path in sources.read)
    assert not [name for name in flags if "another-program" in name]
    assert flags["attention-backend"]["choices"] == [], "the plug-in adds to them: no value is known to be bad"
    assert flags["decode-attention"]["choices"] == ["triton", "fa3", "flashinfer"]


def test_stock_has_none(tmp_path: Path) -> None:
    assert tree_of(trees.NAMESPACES, tmp_path)[1] == {}


@pytest.mark.parametrize(
    "text",
    [
        "def add_cli_args(parser:\n",
        "x = '\0'\n",
        "(" * 5000,
        b"\xff\xfe\x00not utf-8".decode("latin-1") + "\n)",
        "x = " + "-" * 20000 + "1\n",
    ],
    ids=["half a line", "NUL", "too deep", "bytes", "a tower"],
)
def test_a_source_that_does_not_parse_is_a_problem_and_costs_only_itself(text: str, tmp_path: Path) -> None:
    files = {**trees.NAMESPACES, "sglang/srt/arg_groups/fields/broken.py": text}
    flags, sources = read(files, tmp_path)
    assert "host" in flags and "more-of-it" in flags
    assert any("broken.py" in problem and "not known, because" in problem for problem in sources.problems)


def test_names_that_are_computed_are_counted(tmp_path: Path) -> None:
    body = trees.PLAIN["sglang/srt/server_args.py"] + '        parser.add_argument("--" + unknown(), type=int)\n'
    _, sources = read({**trees.PLAIN, "sglang/srt/server_args.py": body}, tmp_path)
    assert sources.problems == ["1 flags are not known, because their names are computed"]


def test_modules_that_import_each_other_and_values_without_end(tmp_path: Path) -> None:
    loop = "from sglang.srt.server_args import B as A\nB = A\n"
    call = "    parser.add_argument('--x', choices=B, default=C)\n"
    body = f"from sglang.srt.a import A as B\nC = C + C\ndef f(parser):\n{call}"
    flags, _ = read({**trees.PLAIN, "sglang/srt/a.py": loop, "sglang/srt/server_args.py": body}, tmp_path)
    assert flags["x"]["choices"] == [] and flags["x"]["default"] is None
