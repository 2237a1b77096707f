"""A ddtree profile on a host: the plug-in is carried there, and the committed unit names its folder."""

from __future__ import annotations

from dataclasses import replace

from ddtree_console.domain.spec import Speculative
from ddtree_console.transport import carried
from tests.contract.consoles import UNIT, fleet_of, screen
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
