"""Rendering a profile that keeps an adopted unit's text: every byte stays but those of what was edited."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from ddtree_console.domain import adoption, quoting
from ddtree_console.domain import launch as launches
from ddtree_console.domain.engines import registry, sglang_launch
from ddtree_console.domain.launch import Launch
from ddtree_console.domain.plan import SECRET_ENV
from ddtree_console.domain.spec import Profile, Secret, Service
from ddtree_console.domain.unitfile import Entry, Span, parse, split_drop_ins

Edit = tuple[int, int, list[str]]
"""(first word, word behind the last, new words as systemd reads them); first == behind: inserted there."""
_LAYOUT = re.compile(r"[ \t]*\\\r?\n[ \t]*\Z")


def apply(profile: Profile, service: Service) -> str:
    """profile.verbatim with what differs from it in profile and slot written in; byte-identical when nothing does.

    ValueError names an edit that the text cannot take (a command that is not modelled, a newline in a value).
    """
    joined = profile.verbatim or ""
    launch = launches.read(joined)
    was = adoption.read(joined)
    spans = [*_command_spans(profile, service, launch, was), *_env_spans(profile, service, launch, was)]
    unit = launch.unit.with_spans(spans)
    for key, new, old in (
        ("User", profile.user, was.profile.user),
        ("WorkingDirectory", profile.workdir, was.profile.workdir),
    ):
        if new != old:
            unit = unit.with_setting("Service", key, () if new is None else (quoting.quote_plain(new, key),))
    return unit.text


def _head(profile: Profile, was: Profile, launch: Launch) -> tuple[str, ...]:
    """The words that start the program, as the profile wants them."""
    if profile.engine == "generic":
        return profile.command
    if profile.command != was.command:
        return profile.command or (profile.python or sglang_launch.PYTHON, *launch.argv[1 : launch.line.head])
    head = launch.argv[: launch.line.head]
    if profile.python != was.python and profile.python and was.python:
        return tuple(profile.python if word == was.python else word for word in head)
    return head


def _quoted(words: Sequence[str], launch: Launch) -> list[str]:
    return [quoting.quote_arg(word, launch.dollar) for word in words]


def _spelled(flags: Mapping[str, Any]) -> dict[str, list[str]]:
    """Each flag as its words; those that are off are left out."""
    spelled = {name: list(sglang_launch.flag_words({name: value})) for name, value in flags.items()}
    return {name: words for name, words in spelled.items() if words}


def _command_spans(profile: Profile, service: Service, launch: Launch, was: adoption.Adopted) -> list[Span]:
    """The replacements in ExecStart=."""
    if launch.problem or launch.exec is None:
        mine = replace(profile, args=tuple(profile.args), command=tuple(profile.command))
        if (mine.engine, mine.model, mine.args, mine.command, dict(mine.flags)) != ("generic", None, (), (), {}):
            raise ValueError(
                f"profile {profile.name}: {launch.problem}, so its command cannot be changed; "
                "write the launch as a profile without verbatim"
            )
        return []
    if profile.engine == "generic" or profile.engine != was.profile.engine:
        return _spans(_argv_edits(registry.command(profile, service).argv, launch), launch, launch.exec)
    edits = _flag_edits(profile, service, launch, was)
    head, old = _head(profile, was.profile, launch), launch.argv[: launch.line.head]
    if head != old:
        edits.append((0, len(old), _program(head, launch)))
    return _spans(edits, launch, launch.exec)


def _program(words: Sequence[str], launch: Launch) -> list[str]:
    return [launch.prefix + quoting.quote_program(words[0]), *_quoted(words[1:], launch)]


def _argv_edits(argv: Sequence[str], launch: Launch) -> list[Edit]:
    """What turns the words that stand there into `argv`, word by word."""
    edits: list[Edit] = []
    matcher = SequenceMatcher(None, launch.argv, tuple(argv), autojunk=False)
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            continue
        if first == 0:
            kept = launch.argv[last : last + 1] if last == 0 else ()
            edits.append((0, max(last, 1), _program((*argv[begin:end], *kept), launch)))
        else:
            edits.append((first, last, _quoted(argv[begin:end], launch)))
    return edits


def _flag_edits(profile: Profile, service: Service, launch: Launch, was: adoption.Adopted) -> list[Edit]:
    """What turns the flags that stand there into those of profile and slot."""
    line = launch.line
    flags, _ = registry.launch_flags(profile)
    flags.pop("port", None)
    port = was.port if was.port is not None else adoption.DEFAULT_PORT
    old, new = dict(was.profile.flags), dict(flags)
    if service.port != port:
        old["port"], new["port"] = was.port, service.port
    if profile.model != was.profile.model:
        name = next((n for n in sglang_launch.MODEL_FLAGS if line.flag(n) and was.profile.model), "model-path")
        old[name], new[name] = was.profile.model, profile.model
    before, after = _spelled(old), _spelled(new)
    edits: list[Edit] = []
    added: list[str] = []
    for key in {**before, **after}:
        words, flag = after.get(key, []), line.flag(key)
        if before.get(key, []) == words:
            continue
        if key not in before or flag is None:
            added += [" ".join(_quoted(words, launch))]
        elif flag.glued and len(words) == 2:
            edits.append((flag.first, flag.last, _quoted([f"--{key}={words[1]}"], launch)))
        elif flag.last - flag.first > 1 and len(words) > 1:
            edits.append((flag.first + 1, flag.last, _quoted(words[1:], launch)))
        else:
            edits.append((flag.first, flag.last, _quoted(words, launch)))
    for index, word in zip_longest(line.loose, profile.args):
        if index is None:
            added += _quoted([word], launch)
        elif word != launch.argv[index]:
            edits.append((index, index + 1, [] if word is None else _quoted([word], launch)))
    if added:
        end = line.argv.index("--") if "--" in line.argv and "--" in profile.args else len(line.argv)
        edits.append((end, end, added))
    return edits


def _gap(launch: Launch, entry: Entry) -> str:
    """What stands before the last flag: a blank, or the line break of a unit with one flag a line."""
    if not launch.line.found:
        return " "
    flag = launch.line.found[-1].first
    span = launch.place(entry, launch.words[flag - 1].end, launch.words[flag].start, "")
    text = launch.unit.text[span.start : span.end]
    return text if _LAYOUT.match(text) else " "


def _spans(edits: list[Edit], launch: Launch, entry: Entry) -> list[Span]:
    """The edits as replacements in the unit's text; new flags follow the layout of the last one."""
    words, spans = launch.words, []
    for first, last, new in edits:
        if first == last:
            before, gap = words[first - 1].end, _gap(launch, entry)
            spans.append(launch.place(entry, before, before, "".join(gap + part for part in new)))
        elif new:
            spans.append(launch.place(entry, words[first].start, words[last - 1].end, " ".join(new)))
        else:
            spans.append(launch.place(entry, words[first - 1].end, words[last - 1].end, ""))
    return spans


def _env_spans(profile: Profile, service: Service, launch: Launch, was: adoption.Adopted) -> list[Span]:
    """The replacements in Environment= lines, and new lines."""
    new = {key: value for key, value in profile.env.items() if not isinstance(value, Secret)}
    new = {**registry.launch_flags(profile)[1], **new}
    old = dict(was.profile.env)
    if service.gpus and service.gpus != was.gpus and "CUDA_VISIBLE_DEVICES" not in profile.env:
        new["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        new["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, service.gpus))
    spans: list[Span] = []
    lines: list[str] = []
    gone: list[launches.Assignment] = []
    for key in {**old, **new}:
        there = launch.env.get(key, ())
        if old.get(key) == new.get(key) or (there and key in new and there[-1].value == new[key]):
            continue
        if key not in new:
            gone += there
        elif there:
            word = there[-1].word
            spans.append(launch.place(there[-1].entry, word.start, word.end, quoting.quote_env(key, new[key])))
        else:
            lines.append(f"Environment={quoting.quote_env(key, new[key])}")
    secret = f"EnvironmentFile={SECRET_ENV}"
    if any(isinstance(value, Secret) for value in profile.env.values()) and secret not in launch.unit.text:
        lines.append(secret)
    if lines:
        spans.append(launch.unit.insertion("Service", launch.unit.eol().join(lines), _last_env(launch)))
    return [*spans, *_without(launch, gone)]


def _without(launch: Launch, gone: Sequence[launches.Assignment]) -> list[Span]:
    """The removal of assignments; a line that would be left empty goes whole, for `Environment=` is a reset."""
    spans: list[Span] = []
    by_line: dict[int, list[launches.Assignment]] = {}
    for item in gone:
        by_line.setdefault(item.entry.start, []).append(item)
    for items in by_line.values():
        entry = items[0].entry
        if len(items) == items[0].siblings:
            spans.append(Span(entry.start, entry.end, ""))
            continue
        for item in items:
            begin, end = item.word.start, item.word.end
            while end < len(entry.value) and entry.value[end] in " \t":
                end += 1
            if end == len(entry.value):
                while entry.value[begin - 1] in " \t":
                    begin -= 1
            spans.append(launch.place(entry, begin, end, ""))
    return spans


def _last_env(launch: Launch) -> Entry | None:
    """Behind which line new variables go: the unit's last one that counts, in a drop-in only where one resets them."""
    own = len(split_drop_ins(launch.unit.text)[0])
    entries = launch.unit.assigned("Service", "Environment")
    in_unit = [entry for entry in entries if entry.start < own]
    if in_unit:
        return in_unit[-1]
    resets = any(e.key == "Environment" and not e.value and e.start >= own for e in launch.unit.entries)
    return entries[-1] if entries and resets else None


def with_directive(text: str, section: str, key: str, values: tuple[str, ...]) -> str:
    """The text where that directive has exactly these values."""
    return parse(text).with_setting(section, key, values).text
