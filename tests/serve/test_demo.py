"""The demo with the wrapper's engine: a sandbox host whose service is this server, really decoding."""

from __future__ import annotations

from pathlib import Path

import httpx

from ddtree_console.demo.sandbox import Sandbox
from tests.demo.helpers import show


async def test_a_sandbox_host_serves_real_tokens(tmp_path: Path, pair_folder: Path) -> None:
    async with Sandbox(tmp_path / "box", hosts=("ct200",), model=str(pair_folder)) as box:
        host, slot = box.host("ct200"), box.fleet.service("ct200/wrapper")
        await host.exec("systemctl start wrapper", timeout=60)  # joins the start that the boot began
        state = await show(host, slot.unit, "Type", "ActiveState", "SubState")
        assert state == {"Type": "notify", "ActiveState": "active", "SubState": "running"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{slot.port}", trust_env=False) as http:
            answer = (
                await http.post("/generate", json={"text": "Hi", "sampling_params": {"max_new_tokens": 5}})
            ).json()
            assert answer["meta_info"]["completion_tokens"] == 5
            info = (await http.get("/server_info")).json()
            assert (info["mode"], info["device"], info["cuda_graph"]) == ("linear", "cpu", "off: cpu")
        assert set(box.fleet.profiles) >= {"linear-wrapper", "ddtree-wrapper", "shadow-wrapper"}
