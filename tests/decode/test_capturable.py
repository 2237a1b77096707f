"""What a CUDA graph cannot record, found on a CPU: a round may neither read back to the host nor copy from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from ddtree_kernels.decode import round as round_module
from ddtree_kernels.decode.highest import highest, launch
from ddtree_kernels.decode.ring import SLOTS, Ring
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from tests.decode.pairs import engine, pair

ATEN = torch.ops.aten
READS = (
    ATEN._local_scalar_dense.default, ATEN.is_nonzero.default, ATEN.nonzero.default, ATEN.equal.default,
    ATEN.masked_select.default, ATEN.lift_fresh.default,
)  # fmt: skip
"""Ops that need a tensor's values on the host, or (the last one) bring the host's to the device."""
ON_DEVICE = ("tree_build", "tree_accept", "linear_accept", "finish")
"""Our operations: kernels on a GPU, specifications in plain loops here."""
ALL = (Settings("autoregressive"), Settings("linear"), Settings("ddtree", 8), Settings("shadow-linear", 8))


class Refused(Exception):
    """A capture would have failed here."""


class Recording(TorchDispatchMode):
    """Refuses what a capture refuses. A number assigned into a tensor is copied from a tensor that no op has made."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: that would load torch's compiler, which takes seconds, and nothing is compiled here."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self._made: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READS:
            raise Refused(str(func))
        if func is ATEN.index.Tensor and any(one is not None and one.dtype == torch.bool for one in args[1]):
            raise Refused(f"{func} by a mask")
        if func is ATEN.copy_.default and args[1].dim() == 0:
            known = {tensor.untyped_storage().data_ptr() for tensor in self._made}
            if args[1].untyped_storage().data_ptr() not in known:
                raise Refused(f"{func} of a number of the host's")
        out = func(*args, **(kwargs or {}))
        self._made += [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        return out


def _number(at: torch.Tensor) -> None:
    at[2] = 0


REFUSED: dict[str, Callable[[torch.Tensor], object]] = {
    "a number assigned": _number,
    "a tensor of the host's": lambda at: torch.tensor([1, 2]),
    "an item": lambda at: int(at[0]),
    "a branch": lambda at: 1 if at[0] > 0 else 0,
    "a mask as index": lambda at: at[at > 0],
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_capture_refuses_is_refused(what: str) -> None:
    with pytest.raises(Refused), Recording():
        REFUSED[what](torch.zeros(3, dtype=torch.int64))


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels are not interpreted here; test_gpu.py captures")
@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("settings", ALL, ids=lambda s: s.mode)
def test_a_round_touches_nothing_of_the_host_s(
    settings: Settings, greedy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = engine(pair(torch.float32), settings, 96, static=True)
    decoder.choose.set(Sampling(temperature=0 if greedy else 1, top_p=0.9), 0)
    list(decoder._prefill([1, 2, 3]))
    decoder.round.settles = True

    def outside(call: Callable[..., Any]) -> Callable[..., Any]:
        def quiet(*args: Any, **options: Any) -> Any:
            with _disable_current_modes():
                return call(*args, **options)

        return quiet

    for name in ON_DEVICE:
        monkeypatch.setattr(round_module, name, outside(getattr(round_module, name)))
    monkeypatch.setattr(decoder.round.cache, "commit", outside(decoder.round.cache.commit))
    with torch.inference_mode(), Recording():
        decoder.round.run()
    row = decoder.round.row()
    assert row[-3] >= 1 and row[0] == int(decoder.round.chosen[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_highest_of_a_row_is_the_first_of_equals(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    logits = torch.randint(-3, 4, (9, 2 * 37), generator=generator).to(dtype).to(device)[:, :37]
    logits[2] = -torch.inf
    logits[3, 5] = torch.inf
    want = logits.argmax(-1)
    want[2] = 0
    root = torch.tensor([11], device=device)
    assert torch.equal(launch(logits, None), want)
    assert torch.equal(launch(logits, root), torch.cat([root, want]))
    assert torch.equal(highest(logits, root), torch.cat([root, want]))
    logits[4] = float("nan")
    logits[4, 30] = -5
    assert int(launch(logits, None)[4]) == 30


def test_a_ring_gives_the_rows_of_the_rounds_since_its_restart() -> None:
    ring = Ring(2, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for number in range(SLOTS + 1):
        ring.rows[number % SLOTS] = number
        ring.turn += 1
    assert ring.last() == ring.row(SLOTS) == [SLOTS, SLOTS] and ring.row(SLOTS - 1) == [SLOTS - 1] * 2
    ring.restart()
    assert int(ring.turn) == 0
