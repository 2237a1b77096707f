"""Which profiles take the plug-in, the folder on their PYTHONPATH, and what is known to be refused."""

from __future__ import annotations

from typing import Any

import pytest

from ddtree_console.domain.engines import plugin
from ddtree_console.domain.engines.base import DialectError
from ddtree_console.domain.engines.sglang_launch import command
from ddtree_console.domain.spec import Profile, Secret, Service, Speculative

SLOT = Service("h", "s", "s.service", 30000, (0,))


def profile(dialect: str | None = "plugin", kind: str = "ddtree", **more: Any) -> Profile:
    return Profile("p", dialect=dialect, model="/m", speculative=Speculative(kind, kind == "ddtree", 15, "/d"), **more)


def test_which_profiles_take_it() -> None:
    assert plugin.needed(profile()) and plugin.needed(profile("plugin-0.5.12"))
    assert not plugin.needed(profile("pr29907")) and not plugin.needed(profile(None))
    assert not plugin.needed(profile("plugin-0.5.23")) and not plugin.needed(profile("no such"))
    assert not plugin.needed(profile(kind="linear")) and not plugin.needed(profile(engine="wrapper"))
    assert not plugin.needed(Profile("p", dialect="plugin", model="/m"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "/opt/ddtree-console/ab12"),
        ({"PYTHONPATH": "/a:/b"}, "/opt/ddtree-console/ab12:/a:/b"),
        ({"PYTHONPATH": "/opt/ddtree-console/0ld:/a:"}, "/opt/ddtree-console/ab12:/a"),
    ],
)
def test_its_folder_comes_first_and_an_older_one_goes(before: dict[str, str], after: str) -> None:
    assert plugin.equipped(profile(env={"X": "1", **before}), "ab12").env == {"X": "1", "PYTHONPATH": after}


def test_a_secret_path_cannot_be_added_to() -> None:
    with pytest.raises(DialectError, match="PYTHONPATH is the secret THEIRS"):
        plugin.equipped(profile(env={"PYTHONPATH": Secret("THEIRS")}), "ab12")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "a Hopper GPU gets fa3, which the DDTree plug-in refuses"),
        ({"attention-backend": "fa3"}, "refuses --attention-backend fa3: only triton"),
        ({"attention-backend": "triton", "decode-attention-backend": "fa3"}, "refuses --decode-attention-backend fa3"),
        ({"attention-backend": "triton", "tp-size": 2}, "refuses tensor parallel: --tp-size 2"),
        ({"attention-backend": "triton", "page-size": 16}, "refuses pages of more than one token"),
        ({"attention-backend": "triton", "enable-lora": True}, "refuses --enable-lora"),
    ],
)
def test_what_it_would_refuse_is_told_before(flags: dict[str, Any], said: str) -> None:
    told = command(profile(flags=flags), SLOT).warnings
    assert sum(said in text for text in told) == 1
    assert command(profile("stock-0.5.12", "linear", flags=flags), SLOT).warnings == ()


def test_nothing_is_told_of_what_it_takes() -> None:
    good = {"attention-backend": "triton", "tp-size": 1, "page-size": "1", "enable-lora": False}
    assert command(profile(flags=good), SLOT).warnings == ()
