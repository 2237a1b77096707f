"""`ddtree-console demo`: two sandbox hosts for as long as somebody looks at them.

For cli: `with running_demo(speed) as fleet:` runs the hosts in a thread of their own, so that a busy screen and a busy
host do not wait for each other; `async with serve_demo(speed) as fleet:` runs them in the caller's event loop.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ddtree_console.demo.sandbox import Sandbox
from ddtree_console.domain.spec import Fleet

FAREWELL = (
    "demo: its two hosts have ended, with their processes and files; no systemd, /etc or GPU of this machine was used"
)
_FIXED = re.compile(r"[A-Za-z0-9_./=:@-]+\Z")


def new_root() -> Path:
    """A fresh folder that only we can enter. Its path goes on remote command lines, which hold fixed words only."""
    base = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ddtree-demo-", dir=base if _FIXED.match(base) else "/tmp"))


@asynccontextmanager
async def serve_demo(speed: float = 20.0, model: str = "") -> AsyncIterator[Fleet]:
    """The demo's fleet while its hosts run in this event loop. OSError or prepare.NotPrepared when they cannot."""
    async with Sandbox(new_root(), speed, remove=True, model=model) as box:
        yield box.fleet


@contextmanager
def running_demo(speed: float = 20.0, model: str = "") -> Iterator[Fleet]:
    """The demo's fleet while its hosts run in a thread. Raises what serve_demo raises."""
    up: Future[Fleet] = Future()
    ends: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def live() -> None:
        end = asyncio.Event()
        ends.set_result((asyncio.get_running_loop(), end))
        async with serve_demo(speed, model) as fleet:
            up.set_result(fleet)
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            if up.done():
                raise
            up.set_exception(error)

    thread = threading.Thread(target=run, name="demo hosts")
    thread.start()
    try:
        yield up.result()
    finally:
        loop, end = ends.result()
        if thread.is_alive():
            loop.call_soon_threadsafe(end.set)
        thread.join()
