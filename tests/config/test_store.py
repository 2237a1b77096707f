"""Saving profiles as children that hold only what differs, and slots put into a fleet file."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.config import schema_json
from ddtree_console.config.load import ConfigError, load_fleet, load_profiles
from ddtree_console.config.store import ProfileStore, add_service, snippet
from ddtree_console.domain import adoption
from ddtree_console.domain.render import render_unit
from ddtree_console.domain.spec import Profile, Secret, Service, Speculative

SHIPPED = Path(__file__).parents[2] / "profiles"
BASE = "model: /m  # mine\nflags: {mem-fraction-static: 0.88, a: true}\nenv: {A: x}\nuser: root\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def test_a_child_holds_only_what_differs(folder: Path) -> None:
    store = ProfileStore(folder)
    base = store.profiles()["base"]
    edited = replace(base, flags={"mem-fraction-static": 0.95, "disable-cuda-graph": True}, env={}, user=None)
    path = store.save("base", "child", edited)
    assert path == folder / "child.yaml"
    assert path.read_text() == (
        "# yaml-language-server: $schema=./schema.json\nextends: base\nuser: null\nflags:\n"
        "  mem-fraction-static: 0.95\n"
        "  disable-cuda-graph: true\n  a: false\nenv:\n  A: null\n"
    )
    assert store.profiles()["child"] == replace(edited, name="child", extends="base")
    assert (folder / "base.yaml").read_text() == BASE
    assert sorted(p.name for p in folder.iterdir()) == ["base.yaml", "child.yaml"]


def test_what_is_there_is_not_overwritten_unasked(folder: Path) -> None:
    store = ProfileStore(folder)
    base = store.profiles()["base"]
    store.save("base", "child", base)
    before = (folder / "child.yaml").read_text()
    with pytest.raises(FileExistsError, match="'child' exists already"):
        store.save("base", "child", replace(base, model="/n"))
    assert (folder / "child.yaml").read_text() == before
    store.save("base", "child", replace(base, model="/n"), overwrite=True)
    assert store.profiles()["child"].model == "/n"


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a b", ".x", "-x", "fleet", "a\n"])
def test_bad_names(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match="profile name"):
        ProfileStore(folder).save("base", name, Profile("x"))


def test_impossible_saves_write_nothing(folder: Path) -> None:
    store = ProfileStore(folder)
    base = store.profiles()["base"]
    store.save("base", "child", base)
    with pytest.raises(KeyError, match="no profile 'gone'"):
        store.save("gone", "other", base)
    with pytest.raises(ValueError, match="cannot extend itself"):
        store.save("child", "base", base, overwrite=True)
    with pytest.raises(ConfigError, match=r"other\.yaml:\d+: model: value holds a newline"):
        store.save("base", "other", replace(base, model="a\nb"))
    with pytest.raises(ConfigError, match=r"read 7, wanted 0\.05 to 0\.99"):
        store.save("base", "other", replace(base, flags={"mem-fraction-static": 7}))
    assert sorted(p.name for p in folder.iterdir()) == ["base.yaml", "child.yaml"]


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8).filter(
    lambda t: not any(ord(c) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(c) <= 0xFDEF for c in t)
)
ODD = ["no", "1e-3", "010", "1:30", "null", "~", "{a: b}", "- x", "#", "a: b", "'", '"', "%x"]
WORD = TEXT.filter(bool) | st.sampled_from(ODD)
VALUE = st.booleans() | st.integers(0, 999) | st.floats(0, 10) | WORD | st.lists(WORD, min_size=2, max_size=3)
DIRECTIVE = WORD.filter(lambda text: not text.rstrip().endswith("\\"))
INTENT = st.builds(
    Speculative, st.sampled_from(["none", "ddtree"]), st.booleans(), st.none() | st.integers(1, 9), st.none() | WORD
)
KEPT = ["[Service]\nExecStart=/x \\\n  y  \n", "a\r\nb\n\n\n", "\tx\n", "\ufeff# x\n\n", "\udc80\n"]
PROFILES = st.builds(
    Profile,
    name=st.just("x"),
    engine=st.sampled_from(["sglang", "wrapper"]),
    dialect=st.none() | st.just("plugin"),
    model=st.none() | WORD,
    user=st.none() | WORD,
    flags=st.dictionaries(st.sampled_from(["x1", "x2", "x3", "x-4"]), VALUE),
    args=st.lists(WORD, max_size=2).map(tuple),
    env=st.dictionaries(st.sampled_from(["A", "B", "C"]), TEXT | st.just(Secret("hub"))),
    speculative=st.none() | INTENT,
    must=st.lists(WORD, max_size=2).map(tuple),
    unit=st.dictionaries(st.sampled_from(["Nice", "Unit.After"]), DIRECTIVE | st.tuples(DIRECTIVE, DIRECTIVE)),
    command=st.lists(WORD, max_size=2).map(tuple),
    verbatim=st.none() | st.sampled_from(KEPT),
)


@given(PROFILES, PROFILES)
def test_what_is_saved_is_read_back(tmp_path_factory: pytest.TempPathFactory, base: Profile, edited: Profile) -> None:
    store = ProfileStore(tmp_path_factory.mktemp("store"))
    store.save("", "base", base)
    store.save("base", "child", edited)
    read = store.profiles()

    def flags(profile: Profile) -> dict[str, Any]:
        return {k: v for k, v in profile.flags.items() if v is not False}

    for name, wanted in (("base", base), ("child", edited)):
        same = replace(wanted, name=name, extends=read[name].extends, flags=flags(wanted))
        assert read[name] == same
        assert {k: type(v) for k, v in read[name].flags.items()} == {k: type(v) for k, v in same.flags.items()}


def test_an_adopted_unit_saved_and_read_renders_byte_for_byte(tmp_path: Path) -> None:
    unit = "# odd \udcff byte\n[Service]\nUser=u\t\nExecStart=/opt/x --port 80 \\\n  'a b'   \n\n"
    found = adoption.adopt(unit, [("/etc/systemd/system/a.service.d/x.conf", "[Service]\nNice=5")], "mine")
    store = ProfileStore(tmp_path)
    store.save("", "mine", found.profile)
    read = store.profiles()["mine"]
    assert read == found.profile
    assert render_unit(read, Service("h", "a", "a.service", 80)).text == unit


FLEETS = {
    "block": "# mine\nhosts:\n  h:  # first\n    address: a.example\n    services:\n      s:\n        unit: s.service\n"
    "        port: 1\n        profile: base   # end\n\n  # second\n  g:\n    address: g.example\n",
    "no services": "hosts:\n  g: {address: g.example}\n  h:\n    address: a.example",
    "flow slot": "hosts:\n  h:\n    address: a\n    services:\n"
    "      s: {unit: s.service, port: 1, profile: base}\n# tail\n",
}
NEW = Service("h", "new", "new.service", 2, (0, 1), "base", boot=False)


@pytest.mark.parametrize("text", FLEETS.values(), ids=FLEETS)
def test_a_slot_is_added_and_every_other_line_kept(folder: Path, text: str) -> None:
    path = folder / "fleet.yaml"
    path.write_text(text)
    assert add_service(path, NEW) is None
    lines = path.read_text().splitlines()
    assert [line for line in text.splitlines() if line not in lines] == []
    assert load_fleet(path).service("h/new") == NEW
    assert len(load_fleet(path).host("h").services) == 2 - (text == FLEETS["no services"])


@pytest.mark.parametrize(
    "text",
    [
        "hosts: {h: {address: a, services: {}}}\n",
        "hosts:\n  other: {address: a}\n",
        "hosts:\n  h:\n    address: a\n    services: {s: {unit: s.service, port: 1, profile: base}}\n",
        "hosts: [\n",
        FLEETS["flow slot"].replace("s: {", "new: {"),
        "",
    ],
)
def test_where_a_slot_cannot_be_added_the_snippet_is_given(folder: Path, text: str) -> None:
    path = folder / "fleet.yaml"
    path.write_text(text)
    assert add_service(path, NEW) == snippet(NEW)
    assert path.read_text() == text
    assert yaml.safe_load(snippet(NEW)) == {
        "new": {"unit": "new.service", "port": 2, "gpus": [0, 1], "profile": "base", "boot": False}
    }


def test_the_shipped_schema_is_current_and_fits_the_shipped_files() -> None:
    assert (SHIPPED / "schema.json").read_text("utf-8") == schema_json.text(), (
        "python -m ddtree_console.config.schema_json"
    )
    # it brings no types
    check = importlib.import_module("jsonschema").Draft202012Validator(json.loads(schema_json.text()))
    for path in SHIPPED.glob("*.yaml"):
        assert path.read_text().startswith("# yaml-language-server: $schema=./schema.json\n")
        check.validate(yaml.safe_load(path.read_text()))
    wrong: list[dict[str, Any]] = [
        {"hosts": {"h": {"adress": "x"}}},
        {"enginee": "x"},
        {"flags": {"a": {}}},
        {"env": {"A": False}},
    ]
    assert not any(check.is_valid(data) for data in wrong)


def test_load_profiles_needs_no_fleet(folder: Path) -> None:
    (folder / "fleet.yaml").write_text("hosts: [")
    assert set(load_profiles(folder)) == {"base"}
