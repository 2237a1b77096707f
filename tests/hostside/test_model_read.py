"""The `model` command on real folders, whole and damaged, as the unit's user; and what is kept of real starts."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddtree_console.domain.plan import Candidate, Plan
from ddtree_console.domain.txview import Verdict
from ddtree_console.hostside import durable, model_read, starts
from ddtree_console.hostside.hostclock import Clock
from ddtree_console.hostside.roots import Roots
from ddtree_console.hostside.tx_base import Served, Tx
from tests.hostside.support import FakeHost

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
CONFIG = {"num_hidden_layers": 2, "tie_word_embeddings": True, "hidden_size": 8}


def shard(path: Path, tensors: dict[str, int], cut: int = 0) -> None:
    """A safetensors file with zeros; `cut` bytes are missing at its end."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header).encode()
    path.write_bytes((struct.pack("<Q", len(head)) + head + bytes(at))[: -cut or None])


def index(where: Path, files: dict[str, str]) -> None:
    """An index that names those files."""
    (where / model_read.INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": files}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A whole model in two shards."""
    where = tmp_path / "model"
    where.mkdir()
    (where / "config.json").write_text(json.dumps(CONFIG))
    shard(where / "a.safetensors", {"model.embed_tokens.weight": 400, "model.layers.0.mlp.weight": 60})
    shard(where / "b.safetensors", {"model.layers.1.mlp.weight": 60})
    index(where, {"x": "a.safetensors", "y": "b.safetensors"})
    return where


def read(name: str | Path, **environ: str) -> dict[str, Any]:
    """The answer for one model."""
    return model_read.read(str(name), environ)


def test_a_whole_model(model: Path) -> None:
    assert read(model) == {"path": str(model), "config": CONFIG, "weights": 520, "problems": []}


def test_what_a_server_does_not_load_is_not_counted(model: Path) -> None:
    shard(model / "b.safetensors", {"lm_head.weight": 400, "mtp.fc.weight": 32, "model.layers.2.eh.weight": 30})
    assert read(model)["weights"] == 460
    (model / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": False}))
    assert read(model)["weights"] == 860


def test_without_an_index(model: Path) -> None:
    (model / model_read.INDEX).unlink()
    assert read(model)["weights"] == 520
    (model / "a.safetensors").rename(model / model_read.SINGLE)
    assert read(model)["weights"] == 460


def test_an_index_without_shards(model: Path) -> None:
    (model / "b.safetensors").unlink()
    told = read(model)
    assert told["config"] == CONFIG and told["weights"] is None
    assert told["problems"] == [f"{model / model_read.INDEX} names 2 files, and b.safetensors is missing"]
    (model / "a.safetensors").unlink()
    assert read(model)["problems"] == [f"{model / model_read.INDEX} names 2 files, and none of them is there"]


def test_a_download_that_was_cut_off(model: Path) -> None:
    shard(model / "b.safetensors", {"model.layers.1.mlp.weight": 60}, cut=7)
    assert "was cut off" in read(model)["problems"][0]
    (model / "b.safetensors").write_bytes(b"\x08")
    assert "is no safetensors file, or was cut off" in read(model)["problems"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "is no JSON"), ("[1]", "holds no object"), ("{" * 100_000, "is no JSON"), ('{"a": \xff}', "is no JSON")],
)
def test_a_config_that_is_none(model: Path, text: str, said: str) -> None:
    (model / "config.json").write_bytes(text.encode("latin-1"))
    told = read(model)
    assert told["config"] == {} and said in told["problems"][0]
    assert told["weights"] == 520


def test_a_pipe_in_place_of_a_file_does_not_hang(model: Path) -> None:
    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")
    assert "is no plain file" in read(model)["problems"][0]


def test_a_quantizers_long_lists_do_not_travel(model: Path) -> None:
    quantized = {"quant_method": "fp8", "modules_to_not_convert": ["x"] * 1000}
    (model / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": quantized}))
    assert read(model)["config"]["quantization_config"] == {"quant_method": "fp8"}


def test_a_hub_id_is_found_in_the_cache(model: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    cached = tmp_path / "hf" / "hub" / "models--Qwen--Qwen3-4B"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit + "\n")
    (cached / "snapshots").mkdir()
    model.rename(cached / "snapshots" / commit)
    assert read("Qwen/Qwen3-4B", HF_HOME=str(tmp_path / "hf"))["weights"] == 520
    assert read("Qwen/Qwen3-4B", HF_HUB_CACHE=str(tmp_path / "hf" / "hub"))["weights"] == 520
    assert model_read.read("Qwen/Qwen3-4B", {"HF_HOME": str(tmp_path / "hf")}, revision=commit)["weights"] == 520
    missing = read("Qwen/Qwen3-8B", HOME=str(tmp_path))
    assert "models--Qwen--Qwen3-8B/refs/main: No such file" in missing["problems"][0]


def test_relative_to_the_units_folder_and_what_is_no_model(model: Path, tmp_path: Path) -> None:
    assert model_read.read("model", {}, workdir=str(tmp_path))["weights"] == 520
    assert "No such file" in read("/nowhere/model")["problems"][0]
    assert "is no folder of a model" in read(model / "config.json")["problems"][0]
    assert "Not a directory" in read("../../etc/passwd/x")["problems"][0]


@given(st.binary(max_size=60))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_model_or_a_reason(model: Path, junk: bytes) -> None:
    (model / "b.safetensors").write_bytes(junk)
    told = read(model)
    assert (told["weights"] is None) == bool(told["problems"])


@root
def test_the_command_reads_as_the_units_user(model: Path, tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "host")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 == 0:
            folder.chmod(folder.stat().st_mode | 0o055)
    asked = {"paths": [str(model), str(model)], "user": "", "unit": "q.service"}
    (answer,) = host.run("model", asked)
    assert [m["weights"] for m in answer["models"]] == [520, 520] and answer["starts"] == []
    (model / "config.json").chmod(0o600)
    (answer,) = host.run("model", {**asked, "user": "nobody"})
    assert "config.json: Permission denied" in answer["models"][0]["problems"][0]
    (answer,) = host.run("model", {**asked, "user": "nobody-of-that-name"})
    assert answer["models"][1]["problems"] == ["this host has no user nobody-of-that-name"]


UNIT = """[Service]
ExecStart=/srv/venv/bin/python3 -m sglang.launch_server --model-path /models/m --port 30000 \\
    --mem-fraction-static 0.3 --api-key hush --tp-size 1
"""


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """Roots below a temporary folder."""
    return Roots(**{name: str(tmp_path / name) for name in ("etc", "run", "var", "opt", "cgroup")}, nvml=False)


def begun(roots: Roots) -> Tx:
    """A transaction of a slot without GPUs."""
    return Tx(roots, Plan("deploy", "q.service", "q", 30000), "20261129-140000-abcd", Clock())


def test_a_start_is_kept_by_what_memory_depends_on(roots: Roots) -> None:
    told = (("weights GB", 1.18), ("kv cache tokens", 321771), ("context_len", 8192))
    starts.note(begun(roots), Candidate(UNIT), Served(Verdict(True), values=told))
    (kept,) = starts.read(roots, "q.service")
    assert kept["measured"] == {"weights GB": 1.18, "kv cache tokens": 321771}
    assert kept["flags"] == {"mem-fraction-static": 0.3, "tp-size": 1}
    assert (kept["model"], kept["python"]) == ("/models/m", "/srv/venv/bin/python3")
    assert "hush" not in starts.file(roots, "q.service").read_text()


def test_only_the_newest_starts_are_kept(roots: Roots) -> None:
    for n in range(starts.KEPT + 3):
        starts.note(begun(roots), Candidate(UNIT), Served(Verdict(True), values=(("weights GB", float(n)),)))
    found = [start["measured"]["weights GB"] for start in starts.read(roots, "q.service")]
    assert found == [float(n) for n in range(3, starts.KEPT + 3)]


def test_nothing_told_and_a_damaged_file(roots: Roots) -> None:
    starts.note(begun(roots), Candidate(UNIT), Served(Verdict(True)))
    assert not starts.file(roots, "q.service").exists()
    durable.make_dir(roots.kept("q.service"))
    starts.file(roots, "q.service").write_text('{"starts": [1, {"model": "x"}')
    assert starts.read(roots, "q.service") == []
    starts.note(
        begun(roots), Candidate("[Service]\nExecStart=oops"), Served(Verdict(True), values=(("weights GB", 1.0),))
    )
    assert len(starts.read(roots, "q.service")) == 1


def test_the_release_is_read_from_the_interpreters_packages(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "lib" / "python3.12" / "site-packages"
    (packages / "sglang-0.5.12.dist-info").mkdir(parents=True)
    (packages / "sglang_kernel-0.4.2.dist-info").mkdir()
    assert starts.release_of(str(tmp_path / "venv" / "bin" / "python3")) == "0.5.12"
    assert starts.release_of(str(tmp_path / "bin" / "python3")) == ""
    assert starts.release_of("python3") == ""
