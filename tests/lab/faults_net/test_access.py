"""What a host refuses at the door, each with its name: the login, sudo, an interpreter that is missing or too old."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ddtree_console.services.errors import HostError
from tests.lab.faults_net.place import KEY, PORT, UNIT, Place
from tests.lab.faults_net.station import station
from tests.lab.fixtures import Hosts
from tests.lab.slot import Slot

pytestmark = pytest.mark.lab

OLD = """import runpy, sys
sys.version_info = (3, 8, 10, "final", 0)
options = [word for word in sys.argv[1:] if word not in ("-I", "-B")]
if options == ["-"]:
    exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
else:
    sys.argv = options
    runpy.run_path(options[0], run_name="__main__")
"""


@pytest.mark.parametrize("user", ["pwops", "ops"])
async def test_without_sudo_one_may_look(slot: Slot, tmp_path: Path, user: str) -> None:
    host = slot.code.host
    place = Place(tmp_path / user, host, user=user).make()
    # the last transaction still writes when its outcome is known
    host.exec(f"until ! systemctl is-active --quiet ddtree-tx-{UNIT}; do sleep 0.02; done", timeout=20)
    kept = host.exec("find /var/lib/ddtree-console /run/ddtree-console /etc/systemd -type f | sort").stdout
    async with station(place) as here:
        await here.up("unprivileged")
        why = here.host().error
        assert why.startswith("h1: read-only: sudo refused (")
        assert "password is required" in why
        await here.until(lambda: here.state().text == "● ready")
        assert here.service().unit is not None
        assert here.service().release.committed == slot.code.state(slot.unit)["committed"]
        assert not [text for text in here.words() if text.startswith(("✖", "▲", "○"))]
        for change in (here.console.deploy(KEY, "quick"), here.console.rollback(KEY)):
            with pytest.raises(HostError, match="sudo refused") as caught:
                await change
            assert caught.value.code == 7
        assert (await here.console.history(KEY))[0].outcome == "committed"
        sudo = [check for check in await here.console.check("h1") if check.name == "sudo"]
        assert [(check.state, "sudo refused" in check.evidence) for check in sudo] == [("fail", True)]
        # an empty journal would say that there is none
        await here.until(lambda: any("may not read the system's journal" in line.gap for line in here.journal()), 5)
    code, _, err = await place.run("deploy", KEY, "--profile", "quick")
    assert code == 7
    assert "sudo refused" in err
    assert "assword:" not in err, "nothing asks"
    assert host.exec("find /var/lib/ddtree-console /run/ddtree-console /etc/systemd -type f | sort").stdout == kept


async def refused(place: Place, *words: str) -> None:
    """The console names the reason and does not dial again; so does the command, with 5."""
    async with station(place) as here:
        await here.until(lambda: here.host().link == "refused", 10)
        assert here.state().text == "? refused"
        assert [word for word in words if word not in here.state().detail] == []
    code, out, err = await place.run("check", "h1")
    assert code == 5
    assert [word for word in words if word not in out + err] == []


async def test_the_login_is_denied(slot: Slot, tmp_path: Path) -> None:
    key = slot.code.host.setting.new_key("stranger")
    place = Place(tmp_path / "stranger", slot.code.host).make(identity=key)
    await refused(place, "permission denied for root", str(key), "check with: ssh root@")


async def test_a_locked_key(slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = tmp_path / "locked"
    make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "a phrase", "-f", str(key))
    assert await (await asyncio.create_subprocess_exec(*make)).wait() == 0
    place = Place(tmp_path / "locked-out", slot.code.host).make(identity=key)
    await refused(place, "locked by a passphrase", f"ssh-add {key}")


async def test_python_is_missing_or_too_old(hosts: Hosts, tmp_path: Path) -> None:
    host = hosts["h1"]
    place = Place(tmp_path / "ann", host).make()
    host.write("/opt/lab/old.py", OLD)
    host.write("/usr/local/bin/python3", '#!/bin/sh\nexec /usr/bin/python3.11 /opt/lab/old.py "$@"\n', 0o755)
    step = "install python3 (3.9 or newer) there, or set `python:` for the host in the fleet file"
    await refused(place, "python 3.8 is too old: 3.9 or newer is needed", step)
    host.exec("rm /usr/local/bin/python3 /usr/bin/python3")
    await refused(place, "python3 is not there", step)
    unit = f"[Service]\nExecStart=/usr/bin/python3.11 -m http.server {PORT} --bind 127.0.0.1\n"
    host.write(f"/etc/systemd/system/{UNIT}", unit)
    host.exec("systemctl daemon-reload")
    async with station(place) as here:
        await here.up()
        assert here.host().python.startswith("3.11"), "a unit's own interpreter, which only root can change"
        assert here.host().privileged
