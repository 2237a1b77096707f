"""Rows of findings, attempts and flags, without a screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddtree_console.domain.build import FlagMark
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import Check
from ddtree_console.ui.paint import Row
from ddtree_console.ui.views import attempts, checks, deploy, finding, flagmarks, fleet, history, host, preflight
from tests.ui import canned, known

NOW = canned.NOW


def text(rows: list[Row]) -> str:
    """Plain lines."""
    return "\n".join("".join(t for t, _ in r).rstrip() for r in rows)


def went_back() -> fleet.Item:
    """The known good serves again after a trial that ended with a finding."""
    committed = canned.snapshots()["ready"].hosts[0].services[0]
    verdict = {**canned.CRASH, "finding": known.GRAPHS.to_json()}
    lines = [verdict if x is canned.CRASH else x for x in canned.WENT_BACK]
    held = [canned.rung(n, t=230.0) for n in ("listener", "info", "token", "held")]
    end = {"kind": "outcome", "state": "went_back", "serves": "qwen3.6-27b", "detail": "r11 serves", "t": 240.0}
    service = replace(committed, tx=canned.tx(*lines, *held, end))
    snapshot = canned.fleet(canned.a6000(service))
    return next(i for i in fleet.items(snapshot, canned.FLEET, NOW) if i.service.key == service.key)


def test_a_service_that_went_back_says_what_the_trial_ended_with() -> None:
    item = went_back()
    said, _ = fleet.detail(item, NOW)
    assert "The GPU ran out of memory while CUDA graphs were captured." in said
    assert "Tried to allocate" not in said and "x why, a applies" in said
    shown = text(host.finding_rows(item.service, 120))
    assert "r12: The GPU ran out of memory" in shown and "a applies: Lower mem-fraction-static" in shown


def test_the_story_is_one_table_from_the_last_start_that_held() -> None:
    older = replace(known.STORY[-1], tx="t0", target="r9")
    rows = attempts.chain_rows([*known.STORY, older], None, 120)
    shown = text(rows)
    assert [w for w in shown.split() if w in ("r9", "r11", "r12", "r13", "r14")] == ["r11", "r12", "r13", "r14"]
    for word in (
        "context-length 32768 -> 131072",
        "KV cache",
        "leave no room for a KV pool",
        "max-running-requests (unset) -> 4",
        "disable-cuda-graph (unset) ->",
        "ptxas refuses Triton's kernel",
    ):
        assert word in shown, word


def test_an_attempt_shows_what_was_edited_since_the_one_before() -> None:
    edited = replace(known.STORY[0], edited=("flag disable-cuda-graph unset -> true",), changed=("flag x 1 -> 2",))
    assert attempts.changed(edited) == "disable-cuda-graph unset -> true"
    shown = text(history.detail_rows(edited, 80))
    assert "against the attempt before" in shown and "against what was committed" in shown and "flag x 1 -> 2" in shown


def test_the_running_attempt_ends_the_table() -> None:
    live = canned.starting().tx
    assert live is not None
    assert text(attempts.chain_rows(known.STORY, live, 120)).endswith("r12  shadow-small  runs now: CUDA graphs")
    recorded = [replace(known.STORY[0], tx=live.tx)]
    assert "runs now" not in text(attempts.chain_rows(recorded, live, 120))


@pytest.mark.parametrize("wide", [40, 160])
def test_words_of_a_wait_are_there_while_it_runs(wide: int) -> None:
    live = known.snapshots()["loading"].hosts[0].services[0].tx
    assert live is not None
    assert "loading, 412 MB/s" in text(deploy.body_rows(live, 208.0, wide))
    assert deploy.words_rows(replace(live, outcome="committed"), wide) == []
    stuck = known.snapshots()["stuck"].hosts[0].services[0].tx
    assert stuck is not None and deploy.words_rows(stuck, wide)[0][0][1] == "warn"


def test_a_finding_without_remedies_says_so() -> None:
    bare = replace(known.POOL, remedies=(), rules_out=())
    assert "no remedy is known" in text(finding.finding_rows(bare, 100))


def test_remedies_without_a_profile_say_what_they_change() -> None:
    shown = text(finding.finding_rows(known.POOL, 100))
    assert "raise mem-fraction-static to at least 0.31" in shown


@pytest.mark.parametrize(
    ("mark", "field", "says"),
    [
        (FlagMark("tp", "ambiguous", "tp-size"), "tp", "✖ ambiguous: --tp-size"),
        (
            FlagMark("speculative-algorithm", "bad-value", "", "no DDTREE here"),
            "speculative kind",
            "✖ bad value: no DD",
        ),
        (FlagMark("speculative-num-draft-tokens", "removed"), "speculative budget", "✖ removed"),
        (FlagMark("x", "not-known", "", "not inspected"), "x", "? not checked"),
        (FlagMark("x", "ok"), "x", ""),
    ],
)
def test_a_mark_stands_at_its_field(mark: FlagMark, field: str, says: str) -> None:
    found = flagmarks.by_field([FlagMark(mark.name, "ok"), mark], Profile("p"))
    assert flagmarks.short(found[field])[0].startswith(says)


def test_a_flag_that_the_profile_sets_itself_is_marked_at_its_own_row() -> None:
    mark = FlagMark("speculative-num-draft-tokens", "removed")
    assert set(flagmarks.by_field([mark], Profile("p", flags={mark.name: 16}))) == {mark.name}


def test_checks_come_worst_first_and_without_the_services_name() -> None:
    shown = [
        Check("sglang-qwen: port", "ok", "ours"),
        Check("odd", "new", "?"),
        Check("sglang-qwen: gpus", "fail", "lost"),
        Check("disk", "warn", "2 GiB"),
    ]
    assert [c.name for c in checks.worst_first(shown)] == ["sglang-qwen: gpus", "disk", "odd", "sglang-qwen: port"]
    assert checks.counts(shown) == "1 failed · 1 warning · 1 ok"
    lines = text(checks.check_rows(shown, 80, "sglang-qwen")).splitlines()
    assert lines[2].split() == ["✖", "gpus", "failed", "lost"]


def test_a_build_that_is_not_known_says_why() -> None:
    bare = replace(known.preflight("h/s", "p"), build=replace(known.BUILD, release="", flags=(), versions={}), marks=())
    shown = text(preflight.preflight_rows(bare, (), 100))
    assert "transformers: not known, because its METADATA could not be read" in shown
    assert "sglang" not in shown.split("PREFLIGHT")[1].split("\n")[1]
