"""The DDTree plug-in on its way to a host: carried before a unit that takes it is submitted."""

from __future__ import annotations

import base64

from ddtree_console.domain.engines import plugin
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Profile
from ddtree_console.services.commands import Commands
from ddtree_console.transport import carried

SECONDS = 20.0


def equipped(profile: Profile) -> Profile:
    """The profile with this console's plug-in on its PYTHONPATH. DialectError where the console has none."""
    try:
        return plugin.equipped(profile, carried.plugin().hash)
    except carried.NotInstalled as error:
        raise DialectError(f"the DDTree plug-in cannot be carried: {error}") from error


async def carry(commands: Commands, *profiles: Profile | None) -> None:
    """Unpacks it on the host where one of those profiles takes it; once, and never overwritten. HostError."""
    if not any(profile is not None and plugin.needed(profile) for profile in profiles):
        return
    archive = carried.plugin()
    tar = base64.b64encode(archive.data).decode()
    await commands.call("carry", {"hash": archive.hash, "tar": tar}, SECONDS)
