"""Reading as another user: ids that are really changed, a work that fails, hangs or is killed."""

from __future__ import annotations

import os
import pwd
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.hostside import as_user

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def _who() -> dict[str, Any]:
    return {"ids": os.getresuid(), "groups": os.getgroups(), "home": os.environ["HOME"]}


@root
def test_the_work_runs_with_the_users_ids_groups_and_home() -> None:
    nobody = pwd.getpwnam("nobody")
    told = as_user.call("nobody", _who)
    assert told["ids"] == [nobody.pw_uid] * 3
    assert 0 not in told["groups"]
    assert told["home"] == nobody.pw_dir
    assert os.geteuid() == 0
    assert as_user.call(str(nobody.pw_uid), _who) == told


@root
def test_what_only_root_may_read_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    with pytest.raises(as_user.NotKnown, match="PermissionError"):
        as_user.call("nobody", lambda: {"text": secret.read_text()})
    assert as_user.call("", lambda: {"text": secret.read_text()}) == {"text": "x"}


def _killed() -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def test_why_not_is_told() -> None:
    with pytest.raises(as_user.NotKnown, match="no user nobody-of-that-name"):
        as_user.call("nobody-of-that-name", _who)
    with pytest.raises(as_user.NotKnown, match="ZeroDivisionError"):
        as_user.call("", lambda: {"n": 1 // 0})
    with pytest.raises(as_user.NotKnown, match="was killed"):
        as_user.call("", _killed)


def test_a_work_that_hangs_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def hang() -> dict[str, Any]:
        mark.write_text(str(os.getpid()))
        time.sleep(60)
        return {}

    began = time.monotonic()
    with pytest.raises(as_user.NotKnown, match="too long"):
        as_user.call("", hang, 0.3)
    assert time.monotonic() - began < 5
    assert not Path("/proc", mark.read_text()).exists()
