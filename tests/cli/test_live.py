"""Ending a command's tasks."""

from __future__ import annotations

import asyncio

import pytest

from ddtree_console.cli import live


async def test_a_task_that_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CANCEL_AGAIN", 0.01)
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while lost < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError("told elsewhere")

    tasks = [asyncio.ensure_future(deaf()), asyncio.ensure_future(fails())]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await live._end(*tasks)
    assert (lost, tasks[0].cancelled()) == (2, True)
