"""A real systemd runs the server as Type=notify: the console deploys it, watches it to ready, and goes back to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddtree_console.domain.txview import fold_all
from tests.lab.faults_net.place import PORT, UNIT, Place
from tests.lab.faults_net.station import station
from tests.lab.fixtures import Hosts
from tests.lab.host import Host

pytestmark = pytest.mark.lab

MODEL = "/models/pair"
PROFILE = """\
engine: wrapper
python: {python}
env: {{PYTHONPATH: "{path}"}}
model: {model}
flags: {{device: cpu, mem-fraction-static: 0.05, max-total-tokens: 2048, drain-seconds: 1}}
speculative: {intent}
"""
INTENTS = {
    "way": "{kind: linear}",
    "quick": "{kind: ddtree, budget: 8}",
    "broken": "{kind: ddtree, draft: /models/no-such-draft}",
}


def interpreter(host: Host) -> tuple[str, str]:
    """An interpreter of the host and the PYTHONPATH with which it has what this one has."""
    asked = "import sys; print(*sys.version_info[:2])"
    for python in (sys.executable, "/usr/bin/python3"):
        done = host.exec(f"{python} -c '{asked}'", check=False)
        if done.stdout.split() == [str(part) for part in sys.version_info[:2]]:
            return python, "/opt/lab-project/kernels:/opt/lab-packages"
    pytest.skip(f"the host has no Python {sys.version_info[0]}.{sys.version_info[1]} that could use these packages")


@pytest.fixture
def place(hosts: Hosts, tmp_path: Path, pair_folder: Path) -> Place:
    """An operator's folder for a new host that has a model and no release."""
    host = hosts["h1"]
    python, path = interpreter(host)
    for file in pair_folder.rglob("*.*"):
        host.write(f"{MODEL}/{file.relative_to(pair_folder)}", file.read_bytes())
    place = Place(tmp_path / "ann", host).make()
    for name, intent in INTENTS.items():
        text = PROFILE.format(python=python, path=path, model="tiny" if name == "way" else MODEL, intent=intent)
        (place.folder / f"{name}.yaml").write_text(text)
    return place


def answer(host: Host, path: str, body: str = "") -> dict[str, object]:
    """What the server says on its host."""
    post = f"-H 'Content-Type: application/json' --data '{body}'" if body else ""
    done = host.exec(f"curl --silent --max-time 20 {post} http://127.0.0.1:{PORT}{path}", timeout=30)
    said: dict[str, object] = json.loads(done.stdout)
    return said


async def test_deployed_watched_to_ready_and_gone_back_to(place: Place) -> None:
    host = place.host
    async with station(place) as here:
        await here.up()
        bad = (await here.console.deploy("h1/qwen", "broken", force=True, reason="to see it fail")).tx
        failed = fold_all(await here.follow(bad))
        assert failed is not None and failed.outcome == "went_way_back", failed
        verdict, back = failed.attempts[0].verdict, failed.attempts[-1]
        assert verdict is not None and "no draft at /models/no-such-draft" in verdict.cause, verdict
        assert back.profile == "way" and back.verdict is not None and back.verdict.ok
        assert answer(host, "/server_info")["mode"] == "linear"

        good = fold_all(await here.follow((await here.console.deploy("h1/qwen", "quick")).tx))
        assert good is not None and good.outcome == "committed", good
        assert good.attempt is not None
        assert [rung.name for rung in good.attempt.rungs if rung.state == "ok"] == [
            *("invocation", "process", "listener", "info", "token", "held")
        ]
        phases = {phase.name: phase.state for phase in good.attempt.phases}
        assert phases["weights"] == phases["draft weights"] == phases["kv cache"] == phases["warm-up"] == "ok"
        await here.until(lambda: here.state().text == "● ready")
        shown = host.exec(f"systemctl show {UNIT} -p Type,NotifyAccess,ActiveState,TimeoutStartUSec,StatusText").stdout
        assert dict(line.split("=", 1) for line in shown.splitlines()) == {
            "Type": "notify", "NotifyAccess": "main", "ActiveState": "active", "TimeoutStartUSec": "infinity",
            "StatusText": "serving",
        }  # fmt: skip
        info = answer(host, "/server_info")
        assert (info["mode"], info["budget"], info["max_total_num_tokens"]) == ("ddtree", 8, 2048)
        body = json.dumps({"prompt": "12+7=", "max_tokens": 9, "temperature": 0, "ignore_eos": True})
        assert answer(host, "/v1/completions", body)["usage"] == {
            "prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14,
        }  # fmt: skip
        assert "SIGTERM received" in host.exec(f"journalctl -u {UNIT} -o cat").stdout
