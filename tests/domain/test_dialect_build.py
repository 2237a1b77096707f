"""The intent in the spelling of an inspected build, or the reason why that build has none."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.build import Build, BuildFlag
from ddtree_console.domain.engines import dialect_build, dialects, registry
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.spec import Profile, Speculative

COMMON = tuple(
    BuildFlag(name, kind="str")
    for name in ("speculative-algorithm", "speculative-draft-model-path", "speculative-num-draft-tokens")
)
STOCK = ("DFLASH", "EAGLE", "NEXTN")


def build(*flags: BuildFlag, release: str = "0.5.12", known: tuple[str, ...] = STOCK, **ddtree: Any) -> Build:
    return Build(
        "sglang", release, "/v/bin/python", "/v/sglang", "ast", (*COMMON, *flags), algorithms=known, ddtree=ddtree
    )


def wanted(kind: str = "ddtree", **more: Any) -> Profile:
    intent = Speculative(kind, draft="/m/draft", **{"budget": 15, **more})
    return Profile("p", dialect="db-guo", model="/m/target", speculative=intent)


def spelled(profile: Profile, of: Build) -> tuple[str, dict[str, Any], dict[str, str]]:
    fitted = dialect_build.fit(profile, of)
    flags, env = registry.launch_flags(fitted)
    flags.pop("speculative-draft-model-path")
    return fitted.dialect or "", flags, env


def test_forks_are_recognised_whatever_the_profile_says() -> None:
    budget = BuildFlag("speculative-ddtree-budget", kind="int")
    fork = build(budget, known=(*STOCK, "DDTREE"), algorithm="DDTREE", flags=[budget.name])
    assert spelled(wanted(), fork) == ("pr29907", {"speculative-algorithm": "DDTREE", budget.name: 15}, {})
    switch = BuildFlag("speculative-dflash-enable-ddtree", kind="bool")
    fork = build(switch, algorithm="DFLASH", flags=[switch.name])
    flags = {"speculative-algorithm": "DFLASH", switch.name: True, "speculative-num-draft-tokens": 16}
    assert spelled(wanted(), fork) == ("db-guo", flags, {})


def test_the_plug_in_takes_its_mode_from_the_environment() -> None:
    one = build(known=(*STOCK, "DDTREE"), algorithm="DDTREE", flags=[], plugin="ddtree-console 0.1.0")
    name, flags, env = spelled(wanted(shadow=True), one)
    assert name == "plugin-0.5.12" and env == {"DDTREE_MODE": "shadow", "DDTREE_BUDGET": "15"}
    assert flags == {"speculative-algorithm": "DDTREE", "speculative-num-draft-tokens": 16}


def test_a_spelling_that_no_known_dialect_has() -> None:
    switch, budget = BuildFlag("enable-tree-verify", kind="bool"), BuildFlag("tree-budget", kind="int")
    fork = build(switch, budget, algorithm="DDTREE_V2", flags=[switch.name, budget.name], release="0.5.24")
    name, flags, _ = spelled(wanted(), fork)
    assert flags == {"speculative-algorithm": "DDTREE_V2", switch.name: True, budget.name: 15}
    # the name alone carries it: it is kept with the release
    assert dialects.spell(name, wanted().speculative).flags == {**flags, "speculative-draft-model-path": "/m/draft"}
    with pytest.raises(DialectError, match="no shadow mode"):
        dialect_build.fit(wanted(shadow=True), fork)


def test_linear_is_dflash_where_the_build_has_it() -> None:
    assert spelled(wanted("linear"), build())[:2] == (
        "stock-0.5.12",
        {"speculative-algorithm": "DFLASH", "speculative-num-draft-tokens": 16},
    )
    # a release that this console does not know yet
    assert spelled(wanted("linear"), build(release="0.5.31"))[1]["speculative-algorithm"] == "DFLASH"
    with pytest.raises(DialectError, match=r"sglang 0\.5\.9 at /v/sglang has no DFLASH; its algorithms are EAGLE"):
        dialect_build.fit(wanted("linear"), build(release="0.5.9", known=("EAGLE",)))


def test_ddtree_on_stock_0_5_12_is_the_plug_in_that_the_console_carries() -> None:
    name, flags, env = spelled(wanted(shadow=True), build())
    assert name == "plugin-0.5.12" and env == {"DDTREE_MODE": "shadow", "DDTREE_BUDGET": "15"}
    assert flags == {"speculative-algorithm": "DDTREE", "speculative-num-draft-tokens": 16}


@pytest.mark.parametrize("release", ["0.5.11", "0.5.13", "0.5.23"])
def test_ddtree_on_any_other_stock_is_refused_with_the_reason(release: str) -> None:
    with pytest.raises(
        DialectError, match=r"has no DDTree, neither as an algorithm \(DFLASH, EAGLE, NEXTN\)"
    ) as caught:
        dialect_build.fit(wanted(), build(release=release))
    assert "the console's own plug-in is for stock 0.5.12 only" in str(caught.value)


def test_what_a_build_lacks_is_refused_with_the_reason() -> None:
    bare = Build("sglang", "0.5.12", package="/v/sglang", source="ast", flags=COMMON[:1], algorithms=STOCK)
    with pytest.raises(DialectError, match="has no --speculative-draft-model-path"):
        dialect_build.fit(wanted("linear"), bare)
    no_width = Build(
        "sglang", "0.5.12", source="ast", flags=COMMON[:2], algorithms=STOCK, ddtree={"algorithm": "DDTREE"}
    )
    with pytest.raises(DialectError, match="no flag for a tree budget"):
        dialect_build.fit(wanted(), no_width)


@pytest.mark.parametrize("of", [Build(), Build("sglang", source="help"), Build("sglang", problems=("x",))])
def test_a_build_that_was_not_read_leaves_the_profile(of: Build) -> None:
    profile = wanted()
    assert dialect_build.fit(profile, of) is profile


def test_no_intent_needs_no_build() -> None:
    plain = Profile("p", model="/m", speculative=Speculative())
    assert dialect_build.fit(plain, build()) is plain


@pytest.mark.parametrize("name", ["build:", "build:algorithm=a b", "build:x=1", "build:algorithm=A,switch=--x;y\n"])
def test_a_made_up_name_is_no_dialect(name: str) -> None:
    with pytest.raises(DialectError, match="not read from a build"):
        dialects.find(name)
