"""The benchmark's rules, without a GPU: a red test gives no timing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddtree_kernels.bench import readmes, rows, run
from ddtree_kernels.bench.flex import Peer
from ddtree_kernels.bench.rows import Row


def test_a_red_test_gives_no_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    timed = []

    def cases() -> Iterator[Row]:
        timed.append(1)
        yield Row("good", "any", 10.0, {"peer": 30.0}, 5.0, 12.0)

    checks: dict[str, run.Check] = {"good": lambda seed: None, "bad": lambda seed: f"differs at seed {seed}"}
    out = tmp_path / "bench.csv"
    assert run.measure(["bad", "good"], checks, {"good": cases, "bad": cases}, 7, out, "card") == 1
    printed = capsys.readouterr()
    assert timed == [1]
    assert "bad: its test is red, so nothing is timed: differs at seed 7" in printed.err
    assert "| good, any | 10.0 | peer 30 (3.0x) | 5.0 (2.00x) | 12 reached |" in printed.out
    assert out.read_text("utf-8").splitlines() == [
        "op,shape,us,peers_us,floor_us,goal_us,machine",
        "good,any,10.00,peer=30.00,5.00,12.00,card",
    ]


def test_a_goal_not_reached_is_said() -> None:
    assert "12 **not reached**" in Row("op", "shape", 13.0, goal=12.0).cells(op=False)


def test_what_fails_stops_only_its_own_operation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Iterator[Row]:
        yield Row("broken", "first", 1.0)
        raise RuntimeError("out of memory")

    def good() -> Iterator[Row]:
        yield Row("good", "any", 2.0)

    out = tmp_path / "bench.csv"
    checks: dict[str, run.Check] = {"broken": lambda seed: None, "good": lambda seed: None}
    assert run.measure(["broken", "good"], checks, {"broken": broken, "good": good}, 7, out, "card") == 1
    assert "out of memory" in capsys.readouterr().err
    assert [line.split(",")[0] for line in out.read_text("utf-8").splitlines()] == ["op", "broken", "good"]


def test_a_readme_gets_the_tables_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def walks() -> Iterator[Row]:
        yield Row("tree_accept", "batch 1, T 65", 3.0, {"reference": 130.0}, 0.0, 10.0)
        yield Row("linear_accept", "batch 1, L 15", 1.6)

    out, readme = tmp_path / "bench.csv", tmp_path / "tree_accept" / "README.md"
    readme.parent.mkdir()
    other = "<!-- round -->\nolder\n<!-- end -->\n"
    readme.write_text(f"# Walk\n<!-- tree_accept -->\nold\n<!-- end -->\nmore\n{other}", "utf-8")
    run.measure(["walk"], {"walk": lambda seed: None}, {"walk": walks}, 7, out, "One card, torch 2")
    capsys.readouterr()
    assert readmes.main(out, tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [str(readme)]
    assert readme.read_text("utf-8").splitlines() == [
        "# Walk",
        "<!-- tree_accept -->",
        f"One card, torch 2, bf16. {readmes.HOW}",
        "",
        *rows.HEAD.splitlines(),
        "| tree_accept, batch 1, T 65 | 3.0 | reference 130 (43.3x) | – | 10 reached |",
        "| linear_accept, batch 1, L 15 | 1.6 | – | – | – |",
        "<!-- end -->",
        "more",
        *other.splitlines(),
    ]


def test_the_flex_attention_peer_attends_to_the_same_tree() -> None:
    torch = pytest.importorskip("torch")
    from torch.nn.attention.flex_attention import flex_attention

    from ddtree_kernels.bench import peers
    from ddtree_kernels.bench.inputs import random_tree
    from ddtree_kernels.ops.tree_attention import reference

    nodes, context = 9, 70
    torch.manual_seed(1)
    q = torch.randn(1, nodes, 4, 16)
    k, v = (torch.randn(1, context + nodes, 2, 16) for _ in range(2))
    words = random_tree(nodes, 3)[2]
    mask = peers.flex_mask(reference.tree_bits(words, nodes), context)
    wanted, _ = reference.tree_attention(q, k, v, words[None], torch.tensor([context]))
    assert torch.allclose(peers.flex(q, k, v, mask, flex_attention), wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('ready', flush=True); input(); print(12.5)", 12.5),
        ("print('LoweringException: no such layout')", "LoweringException: no such layout"),
        ("print('ready', flush=True); input(); print('OutOfMemoryError: 3 GiB')", "OutOfMemoryError: 3 GiB"),
        ("raise SystemExit(1)", "ended without a word"),
    ],
)
def test_a_peer_in_a_process_gives_its_time_or_the_reason(program: str, told: float | str) -> None:
    assert Peer([sys.executable, "-c", program]).time_us() == told


def test_a_peer_that_hangs_is_ended() -> None:
    began = time.monotonic()
    peer = Peer([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.3)
    assert peer.time_us() == "not done after 0 s"
    assert peer.process.returncode is not None
    assert time.monotonic() - began < 30
