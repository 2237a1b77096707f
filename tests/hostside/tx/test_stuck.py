"""A start that is stuck says why while it waits: real processes, a real lock, the whole transaction."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from ddtree_console.demo.host import SandboxHost
from ddtree_console.domain.txview import TxView
from tests.hostside.tx.slots import Slot


def ended_pid() -> int:
    """A process that was there and is not any more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        return child.pid


async def until_words(slot: Slot, words: str, *modes: str, more: str = "") -> TxView:
    """A deployment of that server until its progress says so; then it is given up."""
    tx = await slot.submit(slot.plan("one", *modes, more=more, deadline=60.0, on_failure="stop"))
    view = await slot.until(tx, lambda view: view.words == words, 40.0)
    await slot.request(tx, "abandon")
    await slot.outcome(tx)
    return view


async def test_a_dead_rank_and_a_lock_that_a_killed_run_left(host: SandboxHost) -> None:
    ext = host.root / "extensions/py312_cu130/ops"
    ext.mkdir(parents=True)
    pid = ended_pid()
    (ext / "lock").write_text(f"{pid}\n")
    more = f"Environment=TORCH_EXTENSIONS_DIR={host.root}/extensions"
    dead, locked = await asyncio.gather(
        until_words(Slot(host, "a"), "stuck: rank 1 died, rank 0 waits", "ranks", "deaf"),
        until_words(Slot(host, "b"), f"stuck: waits for a lock left by pid {pid}", "deaf", more=more),
    )
    for view in (dead, locked):
        assert view.running
        assert view.attempt is not None
        assert view.attempt.verdict is None, "it is told long before it ends the wait"
