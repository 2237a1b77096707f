"""What a profile says is what the process gets, through a real systemd: every character that means something to it."""

from __future__ import annotations

import json

import pytest

from ddtree_console.domain.render import render_unit
from ddtree_console.domain.spec import Profile, Service
from tests.lab.fixtures import Hosts

pytestmark = pytest.mark.lab

ODD = (
    "",
    " ",
    "plain",
    "two words",
    "%", "%%", "%n %i %H %t", "100%",
    "$", "$$", "$HOME", "${HOME}", "a$b ${X} $1", "$$$",
    "\\", "\\\\", "C:\\new\\x41", "ends with \\",
    "'", '"', "it's", 'say "hi"', "'\"'", "`id`", "$(id)",
    ";", ";;", "a;b", "&& true", "| cat", "> /tmp/x", "#", "#x", "~", "*", "?", "[a]", "{a,b}", "!", "-", "--",
    "@x", "+x", ":x", "=", "a=b", ",",
    "tab\there", "\x01\x1b[31m", "\x7f",
    "é", "日本語", "\u202ertl", "😀",
    '{"a": [1, "%$\\\\"]}',
)  # fmt: skip

PROGRAM = """import json, os, sys
with open("/run/got.json", "w") as out:
    json.dump({"argv": sys.argv[1:], "env": {k: v for k, v in os.environ.items() if k.startswith("ODD_")}}, out)
"""


def test_arguments_and_environment_come_through_unchanged(hosts: Hosts) -> None:
    host = hosts["h1"]
    host.write("/opt/lab/got.py", PROGRAM)
    env = {f"ODD_{i}": value for i, value in enumerate(ODD)}
    command = ("/usr/bin/python3", "/opt/lab/got.py", *ODD)
    profile = Profile("odd", engine="generic", command=command, env=env, unit={"Type": "oneshot"})
    service = Service("h1", "odd", "odd.service", 8080)
    host.write("/etc/systemd/system/odd.service", render_unit(profile, service).text)
    verified = host.exec("systemd-analyze verify --man=no /etc/systemd/system/odd.service", check=False)
    assert "odd.service" not in verified.stderr
    host.exec("systemctl daemon-reload && systemctl start odd")
    got = json.loads(host.path("/run/got.json").read_text())
    assert got["argv"] == list(ODD)
    assert got["env"] == env
