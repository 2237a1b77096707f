"""Adopting a unit loses nothing: unedited it renders byte for byte, edited only the edit shows."""

from __future__ import annotations

import difflib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_console.domain import adoption, launch, quoting
from ddtree_console.domain.engines import registry
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.render import RenderedUnit, render_unit
from ddtree_console.domain.spec import Profile, Secret, Service, Speculative

UNIT = """\
# written by hand in May
[Unit]
Description=SGLang   for the team

[Service]
User=llm
Environment="HF_HOME=/data/hf home" CUDA_DEVICE_ORDER=PCI_BUS_ID
Environment=CUDA_VISIBLE_DEVICES=0,1
Environment=ODD=100%% N=%H
ExecStart=/root/ml-env/bin/python3 -m sglang.launch_server \\
    --model-path /models/qwen3.6-27b \\
  --mem-fraction-static 0.88 \\
    # why: see ticket
    --context-length=131072 --json '{"a": 1}' \\
    --host 0.0.0.0 --port 30000 \\
    --trust-remote-code
Restart=always
SomeFutureKey=kept\x20

[Install]
WantedBy=multi-user.target
"""
OVERRIDE = "[Service]\nExecStart=\nExecStart=/opt/py/bin/python -m sglang.launch_server --model /m --port 31000\n"
PATH = "/etc/systemd/system/a.service.d/override.conf"


def slot(port: int | None = 30000, gpus: tuple[int, ...] = (0, 1), unit: str = "a.service") -> Service:
    return Service("h", "a", unit, 30000 if port is None else port, gpus)


def again(profile: Profile, found: adoption.Adopted, **changes: object) -> RenderedUnit:
    return render_unit(replace(profile, **changes), slot(found.port, found.gpus))  # type: ignore[arg-type]


def changed(old: str, new: str) -> list[str]:
    return [x for x in difflib.ndiff(old.splitlines(), new.splitlines()) if x[:2] in ("+ ", "- ")]


def test_what_is_read() -> None:
    found = adoption.adopt(UNIT, name="mine")
    profile = found.profile
    assert (found.port, found.gpus) == (30000, (0, 1))
    assert (profile.engine, profile.python, profile.model) == (
        "sglang",
        "/root/ml-env/bin/python3",
        "/models/qwen3.6-27b",
    )
    assert profile.flags == {
        "mem-fraction-static": 0.88,
        "context-length": 131072,
        "json": '{"a": 1}',
        "host": "0.0.0.0",
        "trust-remote-code": True,
    }
    assert profile.env == {"HF_HOME": "/data/hf home", "ODD": "100%"}
    assert profile.user == "llm" and profile.command == () and profile.args == ()


def test_unedited_is_byte_identical() -> None:
    found = adoption.adopt(UNIT)
    assert again(found.profile, found).text == UNIT


def test_only_the_edited_flag_changes() -> None:
    found = adoption.adopt(UNIT)
    flags = {**found.profile.flags, "mem-fraction-static": 0.95}
    assert again(found.profile, found, flags=flags).text == UNIT.replace("static 0.88", "static 0.95")
    flags = {**found.profile.flags, "context-length": 32768}
    assert again(found.profile, found, flags=flags).text == UNIT.replace("=131072", "=32768")


def test_flags_come_and_go_in_the_units_own_layout() -> None:
    found = adoption.adopt(UNIT)
    flags = {k: v for k, v in found.profile.flags.items() if k != "trust-remote-code"}
    out = again(found.profile, found, flags={**flags, "disable-cuda-graph": True, "max-running-requests": 4})
    assert changed(UNIT, out.text) == [
        "-     --trust-remote-code",
        "+     --disable-cuda-graph \\",
        "+     --max-running-requests 4",
    ]
    assert out.argv[-3:] == ("--disable-cuda-graph", "--max-running-requests", "4")


def test_another_slot_gets_its_port_and_gpus() -> None:
    found = adoption.adopt(UNIT)
    out = render_unit(found.profile, slot(31000, (3,)))
    assert out.text == UNIT.replace("--port 30000", "--port 31000").replace(
        "CUDA_VISIBLE_DEVICES=0,1", '"CUDA_VISIBLE_DEVICES=3"'
    )


def test_environment_edits() -> None:
    found = adoption.adopt(UNIT)
    out = again(found.profile, found, env={"HF_HOME": "/new $x %", "NEW": "a b"})
    assert changed(UNIT, out.text) == [
        '- Environment="HF_HOME=/data/hf home" CUDA_DEVICE_ORDER=PCI_BUS_ID',
        '+ Environment="HF_HOME=/new $x %%" CUDA_DEVICE_ORDER=PCI_BUS_ID',
        "- Environment=ODD=100%% N=%H",
        "+ Environment=N=%H",
        '+ Environment="NEW=a b"',
    ]


def test_removing_the_last_variable_of_a_line_leaves_no_reset() -> None:
    text = "[Service]\nEnvironment=A=1\nEnvironment=A=2\nEnvironment=B=1\nExecStart=/x\n"
    found = adoption.adopt(text)
    assert again(found.profile, found, env={"B": "1"}).text == "[Service]\nEnvironment=B=1\nExecStart=/x\n"


def test_user_directives_and_secrets() -> None:
    found = adoption.adopt(UNIT)
    env = {**found.profile.env, "HF_TOKEN": Secret("hub")}
    out = again(found.profile, found, user="root", unit={"Restart": "on-failure", "Unit.After": ["a", "b"]}, env=env)
    assert changed(UNIT, out.text) == [
        "+ After=a",
        "+ After=b",
        "- User=llm",
        "+ User=root",
        f"+ EnvironmentFile={SECRET_ENV}",
        "- Restart=always",
        "+ Restart=on-failure",
    ]
    assert out.secrets == {"HF_TOKEN": "hub"}


def test_intent_becomes_flags_of_the_adopted_command() -> None:
    found = adoption.adopt(UNIT)
    intent = Speculative("ddtree", True, 15, "/models/draft")
    out = again(found.profile, found, dialect="plugin", speculative=intent)
    assert "--speculative-algorithm DDTREE" in out.text and 'Environment="DDTREE_MODE=shadow"' in out.text
    assert adoption.adopt(out.text).profile.flags["speculative-num-draft-tokens"] == 16


def test_drop_ins_are_read_and_an_edit_they_outrank_says_so() -> None:
    found = adoption.adopt(UNIT, [(PATH, OVERRIDE)])
    assert (found.profile.model, found.port, found.profile.python) == ("/m", 31000, "/opt/py/bin/python")
    unedited = again(found.profile, found)
    assert unedited.text == UNIT and unedited.masked == ()
    in_unit = again(found.profile, found, env={**found.profile.env, "NEW": "1"})
    assert in_unit.masked == () and changed(UNIT, in_unit.text) == ['+ Environment="NEW=1"']
    out = again(found.profile, found, flags={"disable-cuda-graph": True})
    assert out.masked == (PATH,) and any(PATH in warning for warning in out.warnings)
    assert out.argv[-1] == "--disable-cuda-graph" and out.text.startswith(UNIT)


def test_drop_ins_are_folded_in_where_the_unit_goes_elsewhere() -> None:
    found = adoption.adopt(UNIT, [(PATH, OVERRIDE)])
    out = render_unit(found.profile, slot(31000, found.gpus, "b.service"))
    assert out.argv[0] == "/opt/py/bin/python" and out.masked == ()


@pytest.mark.parametrize(
    "start",
    [
        "ExecStart=/bin/a ; /bin/b",
        "ExecStart=@/bin/a b",
        "ExecStart=/bin/a\nExecStart=/bin/b",
        'ExecStart=/bin/a "open',
        "ExecStart=/bin/a a\\nb",
        "",
    ],
)
def test_commands_that_are_not_modelled_stay(start: str) -> None:
    text = f"[Service]\nType=oneshot\n{start}\n"
    found = adoption.adopt(text)
    assert found.profile.engine == "generic" and found.warnings
    assert again(found.profile, found).text == text
    with pytest.raises(ValueError, match="cannot be changed"):
        again(found.profile, found, command=("/bin/c",))


@pytest.mark.parametrize("text", [UNIT, "[Service]\nExecStart=/x --port 80\n", "[Service]\nExecStart=/a ; /b\n"])
def test_the_engine_shows_the_command_of_the_kept_unit(text: str) -> None:
    found = adoption.adopt(text)
    service = slot(found.port, found.gpus)
    assert registry.get(found.profile.engine).command(found.profile, service).argv == launch.read(text).argv


def test_expansions_of_systemd_stay_as_they_stand() -> None:
    text = "[Service]\nExecStart=:/bin/py $HOME x\n"
    found = adoption.adopt(text)
    assert found.profile.command == ("/bin/py", "$HOME", "x")
    start = "-/usr/bin/python3 -m sglang.launch_server --model-path ${MODEL} --port 30000 --log-level %i"
    text = f"[Service]\nExecStart={start}\n"
    found = adoption.adopt(text)
    assert len([w for w in found.warnings if "expands" in w]) == 2
    out = again(found.profile, found, flags={**found.profile.flags, "tp-size": 2})
    assert out.text == text.replace("%i\n", "%i --tp-size 2\n")


def test_generic_command_changes_word_by_word() -> None:
    text = "[Service]\nExecStart=/opt/srv --port 8000 ${OPTS} 'a b' --x\n"
    found = adoption.adopt(text)
    assert found.port == 8000
    assert render_unit(found.profile, slot(8001, ())).text == text.replace("8000", "8001")
    argv = [*found.profile.command[:-1], "--y", "z"]
    assert again(found.profile, found, command=tuple(argv)).text == text.replace("--x", "--y z")


NAMES = st.sampled_from(
    ["mem-fraction-static", "context-length", "trust-remote-code", "json-model", "lora", "x-y", "port2"]
)
BARE = ("trust-remote-code",)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=10).filter(launch._modelled)
FLAG_VALUES = st.just(True) | st.integers(0, 10**6) | VALUES.filter(lambda v: not v.startswith("-"))
FLAGS = st.dictionaries(NAMES, FLAG_VALUES, max_size=4).map(
    lambda d: {k: True if k in BARE else v for k, v in d.items()}
)
ENVS = st.dictionaries(st.sampled_from(["A", "B_C", "HF_HOME", "PATH"]), VALUES, max_size=4)


HEADS = [
    "/usr/bin/python3 -m sglang.launch_server --model-path /m",
    "-/opt/x serve",
    "/opt/ddtree-wrapper --model tiny",
    "/usr/bin/env A=1 python -u -m sglang.launch_server",
]


@st.composite
def units(draw: st.DrawFn) -> str:
    """A unit as people write them."""
    sep = draw(st.sampled_from([" ", " \\\n    ", "\t", " \\\n# note\n  "]))
    head = draw(st.sampled_from(HEADS))
    words = [head]
    for name, value in draw(FLAGS).items():
        glued = draw(st.booleans()) and value is not True
        text = str(value)
        plain = f"--{name}" if value is True else f"--{name} {quoting.quote_arg(text)}"
        words.append(quoting.quote_arg(f"--{name}={text}") if glued else plain)
    if draw(st.booleans()):
        words.append(f"--port {draw(st.integers(1, 65535))}")
    env = "".join(f"Environment={quoting.quote_env(k, v)}\n" for k, v in draw(ENVS).items())
    gpus = draw(
        st.sampled_from(["", "Environment=CUDA_VISIBLE_DEVICES=1,0\n", "Environment=CUDA_VISIBLE_DEVICES=GPU-ab\n"])
    )
    noise = draw(st.sampled_from(["", "# c\n", "Nice=1\n", "junk\n", "Environment=\n"]))
    first = draw(st.sampled_from(["", "[Unit]\n"]))
    return f"{first}[Service]\n{env}{noise}{gpus}ExecStart={sep.join(words)}\nUser=u\n"


@given(units())
def test_adopted_units_render_byte_for_byte(text: str) -> None:
    found = adoption.adopt(text)
    assert not launch.read(text).problem
    out = again(found.profile, found)
    assert out.text == text and out.masked == ()


@given(units(), FLAGS, ENVS, st.integers(1, 65535))
def test_edits_arrive_and_nothing_else_changes(
    text: str, flags: dict[str, object], env: dict[str, str], port: int
) -> None:
    found = adoption.adopt(text)
    generic = found.profile.engine == "generic"
    wanted = replace(found.profile, env=env, flags=found.profile.flags if generic else flags)
    back = adoption.adopt(render_unit(wanted, slot(port, found.gpus)).text)
    assert dict(back.profile.env) == env
    assert (back.port == port) or (found.port is None and (generic or port == 30000))
    want = {k: v for k, v in dict(wanted.flags).items() if v is not False}
    assert {k: str(v) for k, v in back.profile.flags.items()} == {k: str(v) for k, v in want.items()}
    assert back.profile.args == found.profile.args and back.profile.model == found.profile.model
    if not generic:
        assert back.profile.command == found.profile.command


@given(st.text() | units(), st.lists(st.tuples(st.just(PATH), st.text()), max_size=2))
def test_any_text_can_be_adopted_and_comes_back(text: str, drop_ins: list[tuple[str, str]]) -> None:
    found = adoption.adopt(text, drop_ins)
    assert render_unit(found.profile, slot(found.port, found.gpus)).text == text
