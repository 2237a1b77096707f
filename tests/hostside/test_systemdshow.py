"""`systemctl show` as systemd 252 prints it, and as anything else."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ddtree_console.domain import systemdshow

RECORDED = """Result=exit-code
NRestarts=3
MainPID=0
ExecMainCode=1
ExecMainStatus=203
MemoryCurrent=[not set]
CPUUsageNSec=18446744073709551615
ControlGroup=
Id=a.service
LoadState=loaded
ActiveState=failed
SubState=failed
FragmentPath=/etc/systemd/system/a.service
DropInPaths=/etc/systemd/system/a.service.d/10-x.conf /run/with\\x20space/b.conf
UnitFileState=enabled
StateChangeTimestamp=Sat 2024-11-30 08:05:03 UTC
NeedDaemonReload=yes
InvocationID=5b7a0000000000000000000000000001

Id=gone.service
LoadState=not-found
ActiveState=inactive
SubState=dead
StateChangeTimestamp=
"""


def test_a_recorded_answer() -> None:
    states = systemdshow.states(["a.service", "gone.service"], RECORDED)
    failed = states["a.service"]
    assert (failed.active, failed.result, failed.restarts) == ("failed", "exit-code", 3)
    assert (failed.exit_code, failed.exit_status, failed.need_reload) == (1, 203, True)
    assert failed.memory is None
    assert failed.cpu_ns is None
    assert failed.since == 1732953903
    assert failed.drop_ins == ("/etc/systemd/system/a.service.d/10-x.conf", "/run/with space/b.conf")
    assert states["gone.service"].load == "not-found"
    assert states["gone.service"].since is None


def test_an_alias_is_found_by_its_place_and_a_missing_block_by_its_id() -> None:
    assert systemdshow.states(["alias.service"], "Id=real.service\nActiveState=active\n")["alias.service"].active == (
        "active"
    )
    found = systemdshow.states(["x.service", "y.service"], "Id=y.service\nActiveState=active\n")
    assert list(found) == ["y.service"]


def test_times_of_other_zones_are_unknown_rather_than_wrong() -> None:
    assert systemdshow.stamp("@1700000000") == 1700000000
    assert systemdshow.stamp("Sat 2024-11-30 09:05:03 CET") is None
    assert systemdshow.stamp("n/a") is None


VALUE = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=30)
KNOWN = st.dictionaries(st.sampled_from(systemdshow.PROPERTIES), VALUE)


@given(st.lists(KNOWN.map(lambda d: {"Id": "u", **d}), min_size=1, max_size=4))
@example([{"MainPID": "²", "NRestarts": "-1", "StateChangeTimestamp": "Xyz 2024-13-99 99:99:99 UTC"}])
def test_any_value_of_any_property_is_read(blocks: list[dict[str, str]]) -> None:
    text = "\n\n".join("\n".join(f"{k}={v}" for k, v in block.items()) for block in blocks)
    states = systemdshow.states([f"u{i}" for i in range(len(blocks))], text)
    assert len(states) == len(blocks)
    for block, state in zip(blocks, states.values(), strict=True):
        wanted = block.get("ActiveState", "")
        assert state.active == ("" if wanted == "[not set]" else wanted)
        assert state.main_pid >= 0
        assert state.memory is None or 0 <= state.memory < 2**64


@given(st.text(max_size=400))
def test_no_text_breaks_the_parser(text: str) -> None:
    for state in systemdshow.states(["a", "b"], text).values():
        assert state.restarts >= 0
