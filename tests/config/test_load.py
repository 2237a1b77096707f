"""Fleet and profile files: what is read, and what is said of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_console.config.load import ConfigError, find_fleet, load_fleet, searched
from ddtree_console.domain.render import render_unit
from ddtree_console.domain.spec import Fleet, Secret, Speculative

SHIPPED = Path(__file__).parents[2] / "profiles"
ONE = (
    "hosts:\n  h:\n    address: h.example\n    services:\n      s: {unit: s.service, port: 1, gpus: [0], profile: p}\n"
)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, "utf-8")
    return folder / "fleet.yaml"


def problems(folder: Path, files: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_fleet(write(folder, {"fleet": ONE, "p": "model: /m\n", **files}))
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def loaded(folder: Path, files: dict[str, str]) -> Fleet:
    return load_fleet(write(folder, {"fleet": ONE, **files}))


def test_the_shipped_story() -> None:
    fleet = load_fleet(SHIPPED / "fleet.yaml")
    assert fleet.warnings == ()
    assert [s.key for h in fleet.hosts for s in h.services] == [
        "ct129/sglang-qwen",
        "ct200/sglang-dflash",
        "ct200/wrapper",
    ]
    assert all(host.address.endswith(".example") for host in fleet.hosts)
    shadow, small, bare = (fleet.profiles[f"ddtree-shadow{x}"] for x in ("", "-small", "-small-nograph"))
    assert (shadow.flags["mem-fraction-static"], shadow.flags["context-length"]) == (0.88, 131072)
    assert (small.extends, bare.extends) == ("ddtree-shadow", "ddtree-shadow-small")
    assert small.flags == {
        **shadow.flags,
        "mem-fraction-static": 0.95,
        "context-length": 32768,
        "max-running-requests": 4,
    }
    assert bare.flags == {**small.flags, "disable-cuda-graph": True}
    for name in (
        "ddtree-shadow",
        "ddtree-shadow-small",
        "ddtree-shadow-small-nograph",
        "dflash-smoke",
        "linear-wrapper",
    ):
        text = (SHIPPED / f"{name}.yaml").read_text()
        assert "\nspeculative: " in text and text.startswith("# yaml-language-server: $schema=./schema.json\n")
    slot = fleet.service("ct200/sglang-dflash")
    assert (slot.port, slot.gpus, slot.fallback_service) == (30001, (1,), "wrapper")
    for host in fleet.hosts:
        for service in host.services:
            for wanted in filter(None, (service.profile, service.fallback)):
                assert render_unit(fleet.profiles[wanted], service).text


def test_everything_that_a_fleet_may_say(tmp_path: Path) -> None:
    fleet = loaded(
        tmp_path,
        {
            "fleet": ONE.replace("profile: p", "profile: p, boot: false, fallback: q, hold_s: 5, deadline_s: 60.5")
            + "  here: {local: true, python: /usr/bin/python3}\n"
            + "  far: {address: 10.0.0.1, port: 2222, user: ops, jump: h, identity: ~/.ssh/k, known_hosts: /k}\n",
            "p": "extends: q\nmodel: /m\nenv: {T: {secret: hub}, V: 1.10, W: null}\n"
            "unit: {Nice: 5, After: [a, b]}\nmust: [x]\n",
            "q": "engine: wrapper\nenv: {W: w, Z: z}\nargs: [--a, 1.50]\nspeculative: {kind: ddtree, budget: 3}\n",
        },
    )
    slot = fleet.service("h/s")
    assert (slot.boot, slot.hold_s, slot.deadline_s, slot.fallback) == (False, 5.0, 60.5, "q")
    assert fleet.host("here").local and fleet.host("far").jump == "h" and fleet.host("far").port == 2222
    profile = fleet.profiles["p"]
    assert profile.env == {"Z": "z", "T": Secret("hub"), "V": "1.10"} and profile.args == ("--a", "1.50")
    assert profile.unit == {"Nice": "5", "After": ("a", "b")} and profile.engine == "wrapper"


def test_inheritance(tmp_path: Path) -> None:
    fleet = loaded(
        tmp_path,
        {
            "p": "extends: q\nflags: {a: false, c: 3}\nspeculative: {shadow: false}\nuser: null\n",
            "q": "extends: r\nflags: {b: 2}\nspeculative: {shadow: true, budget: 7}\nargs: []\n",
            "r": "user: root\nflags: {a: true, z: [1, 2]}\nargs: [x]\n"
            "speculative: {kind: ddtree, draft: /d}\ndialect: plugin\n",
            "l": "extends: q\nspeculative: {kind: linear}\n",
        },
    )
    p = fleet.profiles["p"]
    assert (dict(p.flags), p.user, p.args) == ({"z": [1, 2], "b": 2, "c": 3}, None, ())
    assert p.speculative == Speculative("ddtree", False, 7, "/d")
    assert fleet.profiles["l"].speculative == Speculative("linear", draft="/d")


CASES = [
    ({"p": "model: [a\nflags: {}\n"}, "p.yaml:2: malformed YAML: while parsing a flow sequence"),
    ({"p": "model: a\n\tb: c\n"}, "p.yaml:2: malformed YAML"),
    ({"p": "a: &x [*x]\n"}, "p.yaml:1: a[0]: an alias refers to itself"),
    ({"p": "model: !!python/object:os.system x\n"}, "p.yaml:1: model: YAML reads 'x' with the tag"),
    ({"p": "--- {}\n--- {}\n"}, "p.yaml:2: holds several YAML documents"),
    ({"p": "- a\n"}, "p.yaml:1: read a list, wanted a mapping of keys"),
    ({"p": ""}, "p.yaml:1: read nothing (null), wanted a mapping of keys"),
    ({"p": "model: a\nflgas: {}\n"}, "p.yaml:2: flgas: unknown key; did you mean flags?"),
    ({"p": "speculative: {kid: none}\n"}, "p.yaml:1: speculative.kid: unknown key; did you mean kind?"),
    ({"p": "model: 7\n"}, "p.yaml:1: model: read the number 7, wanted text"),
    ({"p": "model:\n  a: 1\n"}, "p.yaml:1: model: read a mapping, wanted text"),
    (
        {"p": "flags:\n  mem-fraction-static: 1e-3\n"},
        "p.yaml:2: flags.mem-fraction-static: read the text '1e-3' (YAML takes 1.0e-3 for a number",
    ),
    ({"p": "flags:\n  mem-fraction-static: 88\n"}, "p.yaml:2: flags.mem-fraction-static: read 88, wanted 0.05 to 0.99"),
    ({"p": "flags:\n  context-length: lots\n"}, "p.yaml:2: flags.context-length: read 'lots', wanted a whole number"),
    (
        {"p": "flags: {disable-cuda-graph: 'yes'}\n"},
        "flags.disable-cuda-graph: read the text 'yes', wanted true or false",
    ),
    ({"p": "flags: {tp-size: true}\n"}, "flags.tp-size: read true (YAML reads the plain words yes, on, true so"),
    ({"p": "flags: {x: 010}\n"}, "p.yaml:1: flags.x: YAML reads 010 as the number 8: write that, or put it in quotes"),
    ({"p": "flags: {x: 1:30}\n"}, "p.yaml:1: flags.x: YAML reads 1:30 as the number 90"),
    ({"p": "flags: {x: .inf}\n"}, "p.yaml:1: flags.x: read the number inf"),
    ({"p": "flags: {port: 1}\n"}, "p.yaml:1: flags.port: the port belongs to the service"),
    ({"p": "env:\n  A: no\n"}, "p.yaml:2: env.A: read false (YAML reads the plain words no, off, false so"),
    ({"p": "unit: {Restart: no}\n"}, "p.yaml:1: unit.Restart: read false"),
    ({"p": "no: 1\n"}, "p.yaml:1: no: YAML reads this key as bool, not as text"),
    ({"p": "model: a\nuser: x\nmodel: b\n"}, "p.yaml:3: model: given twice, first in line 1"),
    ({"p": "<<: {a: 1}\n"}, "p.yaml:1: <<: YAML merge keys are not used here; use `extends`"),
    ({"p": 'model: "a\\nb"\n'}, "p.yaml:1: model: value holds a newline"),
    ({"p": 'args: [a, "b\\0"]\n'}, "p.yaml:1: args[1]: value holds a NUL character"),
    ({"p": "env:\n  A: |\n    x\n    y\n"}, "p.yaml:2: env.A: value holds a newline"),
    ({"p": 'unit: {Nice: "1\\\\"}\n'}, "p.yaml:1: unit.Nice: unit Nice: a backslash at its end"),
    ({"p": "dialect: stock-9\n"}, "p.yaml:1: dialect: dialect 'stock-9' is not known; known are"),
    ({"p": "extends: nobody\n"}, "p.yaml:1: extends: no profile 'nobody'; profiles here: p"),
    ({"p": "extends: pp\n", "pq": "{}\n"}, "p.yaml:1: extends: no profile 'pp'; did you mean"),
    ({"p": "model: a\nextends: p\n"}, "p.yaml:2: extends: goes in a circle: p -> p"),
    (
        {"p": "extends: q\n", "q": "extends: r\n", "r": "extends: p\n"},
        "q.yaml:1: extends: goes in a circle: p -> q -> r -> p",
    ),
    ({"p": "extends: q\n", "q": "extends: r\n"}, "q.yaml:1: extends: no profile 'r' (chain: p -> q -> r)"),
    (
        {"fleet": ONE.replace("profile: p", "profile: pp")},
        "fleet.yaml:5: hosts.h.services.s.profile: no profile 'pp'; did you mean p?",
    ),
    (
        {"fleet": ONE.replace("profile: p", "profile: p, fallback: zz")},
        "hosts.h.services.s.fallback: no profile 'zz'; profiles here: p",
    ),
    (
        {"fleet": ONE.replace("profile: p", "profile: p, fallback_service: t")},
        "hosts.h.services.s.fallback_service: no service 't' on h; others here: none",
    ),
    (
        {"fleet": ONE.replace("profile: p", "profile: p, fallback_service: s")},
        "fallback_service: is this service itself",
    ),
    (
        {"fleet": ONE + "      t: {unit: t.service, port: 1, profile: p}\n"},
        "fleet.yaml:6: hosts.h.services.t.port: 1 is the port of service s as well",
    ),
    (
        {"fleet": ONE + "      t: {unit: s.service, port: 2, profile: p}\n"},
        "fleet.yaml:6: hosts.h.services.t.unit: s.service is the unit of service s as well",
    ),
    ({"fleet": ONE.replace("[0]", "[0, 0]")}, "hosts.h.services.s.gpus: names a GPU twice"),
    (
        {"fleet": ONE.replace("port: 1", "port: 70000")},
        "hosts.h.services.s.port: read the number 70000: input should be less",
    ),
    (
        {"fleet": ONE.replace("port: 1", "port: '1'")},
        "hosts.h.services.s.port: read the text '1', wanted a whole number",
    ),
    (
        {"fleet": ONE.replace("s.service", "-x.service")},
        "hosts.h.services.s.unit: read the text '-x.service', wanted a unit name",
    ),
    (
        {"fleet": ONE.replace("address: h.example", "adress: h.example")},
        "fleet.yaml:3: hosts.h.adress: unknown key; did you mean address?",
    ),
    (
        {"fleet": ONE.replace("address: h.example", "user: x")},
        "fleet.yaml:2: hosts.h: needs an address, or `local: true`",
    ),
    ({"fleet": ONE.replace("h.example", "-oProxyCommand=x")}, "fleet.yaml:3: hosts.h.address: read the text"),
    (
        {"fleet": ONE.replace("  h:\n", "  h:\n    jump: nowhere\n")},
        "fleet.yaml:3: hosts.h.jump: no host 'nowhere' here",
    ),
    ({"fleet": ONE.replace("  h:\n", "  h:\n    jump: h\n")}, "fleet.yaml:3: hosts.h.jump: goes in a circle: h -> h"),
    (
        {"fleet": ONE.replace("  h:", "  h h:")},
        "fleet.yaml:2: hosts.h h: read the text 'h h', wanted a name of letters",
    ),
    ({"fleet": "{}"}, "fleet.yaml:1: hosts: is missing"),
    ({"fleet": "hosts: {a: [}\n"}, "fleet.yaml:1: malformed YAML"),
]


@pytest.mark.parametrize(("files", "said"), CASES, ids=[said[:60] for _, said in CASES])
def test_each_mistake_is_named_with_its_line(tmp_path: Path, files: dict[str, str], said: str) -> None:
    found = problems(tmp_path, files)
    assert any(said in problem for problem in found), found


def test_all_problems_at_once_in_order(tmp_path: Path) -> None:
    found = problems(tmp_path, {
        "fleet": ONE + "      t: {unit: t.service, port: 1, profile: p}\n      u: {port: 3, profile: p}\n",
        "p": "modle: a\nflags:\n  tp-size: x\n  page-size: 0\nextends: q\n",
        "z": "model: [\n",
    })  # fmt: skip
    assert [problem.partition(" ")[0] for problem in found] == [
        "fleet.yaml:6:", "fleet.yaml:7:", "p.yaml:1:", "p.yaml:3:", "p.yaml:4:", "p.yaml:5:", "z.yaml:2:",
    ]  # fmt: skip


SHARED = ONE + "      t: {unit: t.service, port: 2, gpus: [0], profile: q, boot: true}\n"


def test_a_shared_gpu_is_a_warning_until_the_fractions_do_not_fit(tmp_path: Path) -> None:
    files = {"fleet": SHARED, "p": "flags: {mem-fraction-static: 0.5}\n", "q": "flags: {mem-fraction-static: 0.45}\n"}
    (warning,) = loaded(tmp_path, files).warnings
    assert warning == f"{tmp_path}/fleet.yaml:6: hosts.h.services.t.gpus: GPU 0 is shared by s, t"
    files["q"] = "flags: {mem-fraction-static: 0.46}\n"
    (problem,) = problems(tmp_path, files)
    assert problem.endswith(
        "t.gpus: GPU 0 is shared and its memory fractions sum to 0.5 (s) + 0.46 (t) = 0.96, above 0.95"
    )
    files["fleet"] = SHARED.replace("boot: true", "boot: false")
    assert len(loaded(tmp_path, files).warnings) == 1


def test_an_intent_without_spelling_is_a_warning(tmp_path: Path) -> None:
    fleet = loaded(tmp_path, {"p": "model: a\nspeculative: {kind: ddtree, draft: /d}\ndialect: stock-0.5.12\n"})
    assert fleet.warnings == (
        f"{tmp_path}/p.yaml:2: speculative: stock-0.5.12 cannot do ddtree; dialects that can: "
        "pr29907, pr31069, db-guo, rancy-wang, plugin",
    )


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml:1: cannot be read: No such file"):
        load_fleet(tmp_path / "none.yaml")
    write(tmp_path, {"fleet": ONE})
    (tmp_path / "p.yaml").write_bytes(b"model: a\nuser: \xff\n")
    with pytest.raises(ConfigError, match=r"p\.yaml:2: is not UTF-8: byte 0xff"):
        load_fleet(tmp_path / "fleet.yaml")


def test_other_files_beside_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".hidden.yaml").write_text("[")
    (tmp_path / "notes.txt").write_text("[")
    assert set(loaded(tmp_path, {"p": "model: a\n", "other-fleet": "hosts: {}\n"}).profiles) == {"p"}


def test_where_a_fleet_is_looked_for(tmp_path: Path) -> None:
    home, cwd = tmp_path / "home", tmp_path / "cwd"
    env = {"HOME": str(home)}
    assert find_fleet(None, env, cwd) is None
    assert searched(env, cwd)[2:] == (f"{cwd}/profiles/fleet.yaml", f"{home}/.config/ddtree-console/fleet.yaml")
    for folder in (home / ".config/ddtree-console", tmp_path / "xdg/ddtree-console", cwd / "profiles"):
        folder.mkdir(parents=True)
        (folder / "fleet.yaml").touch()
    assert find_fleet(None, env, cwd / "profiles") == home / ".config/ddtree-console/fleet.yaml"
    assert find_fleet(None, {**env, "XDG_CONFIG_HOME": str(tmp_path / "xdg")}, tmp_path) == (
        tmp_path / "xdg/ddtree-console/fleet.yaml"
    )
    assert find_fleet(None, env, cwd) == cwd / "profiles/fleet.yaml"
    assert find_fleet(None, {**env, "DDTREE_FLEET": "/x.yaml"}, cwd) == Path("/x.yaml")
    assert find_fleet("/y.yaml", {**env, "DDTREE_FLEET": "/x.yaml"}, cwd) == Path("/y.yaml")
    assert find_fleet(cwd / "profiles", env, tmp_path) == cwd / "profiles/fleet.yaml"
