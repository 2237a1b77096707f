"""A ddtree profile on a host: the plug-in is carried there, the committed unit names its folder, and the console shows
what the server, a recorded run with the plug-in, tells of its trees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtree_console.demo import recordings
from ddtree_console.domain.engines import ddtree_info
from ddtree_console.domain.service_state import service_state
from ddtree_console.domain.snapshot import HostSnapshot
from ddtree_console.domain.spec import Speculative
from ddtree_console.transport import carried
from ddtree_console.ui.views.host import http_rows
from tests.contract.consoles import UNIT, fleet_of, profile, screen
from tests.contract.real import RealHost


async def test_the_unit_finds_the_plug_in_by_its_path(real_host: RealHost) -> None:
    fleet = await fleet_of(real_host)
    intent = Speculative("ddtree", True, 15, "/models/draft")
    tree = replace(fleet.profiles["quick"], name="tree", dialect="plugin-0.5.12", speculative=intent)
    async with screen(replace(fleet, profiles={**fleet.profiles, "tree": tree})) as see:
        await see.up()
        sent = await see.console.deploy(see.key, tree, force=True, reason="a replayed server: there is no model here")
        assert (await see.outcome(sent.tx)).data["state"] == "committed"
        folder = real_host.path(f"/opt/ddtree-console/{carried.plugin().hash}")
        for name, data in carried.plugin().files.items():
            assert (folder / name).read_bytes() == data
        unit = real_host.path(f"/etc/systemd/system/{UNIT}").read_text()
        assert f'Environment="PYTHONPATH=/opt/ddtree-console/{carried.plugin().hash}"' in unit
        assert 'Environment="DDTREE_MODE=shadow"' in unit and 'Environment="DDTREE_BUDGET=15"' in unit


@pytest.mark.parametrize(
    ("name", "accept", "words"),
    [
        ("tiny-tree-63", 4.05, "the tree saves 1.25 tokens a round"),
        ("tiny-shadow-31", 3.67, "the tree would have saved 0.50 tokens a round; enable with `e`"),
    ],
)
async def test_a_recorded_server_becomes_ready_and_shows_its_accept_length(
    real_host: RealHost, name: str, accept: float, words: str
) -> None:
    python, replayer = (await real_host.exec("command -v python3")).strip(), real_host.replayer()
    recorded = recordings.load(name).responses["/server_info"][1]
    section = ddtree_info.read(recorded)
    assert section is not None
    intent = Speculative("ddtree", section.mode == "shadow", section.budget, recorded["speculative_draft_model_path"])
    served = profile(python, replayer, name, 200, "tree")
    tree = replace(served, dialect="plugin-0.5.12", speculative=intent)
    fleet = await fleet_of(real_host)
    async with screen(replace(fleet, profiles={**fleet.profiles, "tree": tree})) as see:
        await see.up()
        sent = await see.console.deploy(see.key, tree, force=True, reason="a replayed server: there is no model here")
        assert (await see.outcome(sent.tx)).data["state"] == "committed"

        def told(host: HostSnapshot) -> bool:
            http = host.services[0].http
            return http.accept_len is not None and ddtree_info.read(http.info) == section

        host = await see.until(told)
        service = host.services[0]
        assert service_state(host, service, host.at or 0.0).word == "ready" and service.drift == ()
        assert service.http.source == "metrics" and service.http.accept_len == pytest.approx(accept, abs=0.01)
        assert ddtree_info.verdict(section)[0] == words
        shown = ["".join(text for text, _ in row).strip() for row in http_rows(service, None, host.at or 0.0, 100)]
        assert f"accept {service.http.accept_len:.2f}" in " ".join(shown) and shown[-1] == words
