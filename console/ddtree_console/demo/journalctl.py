"""The sandbox's `journalctl`: units, matches with `+`, cursors, boots, follow; json, cat and short output."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ddtree_console.demo.control import Call
from ddtree_console.demo.journal_store import Entry, Journal
from ddtree_console.demo.options import Parsed, Usage, parse
from ddtree_console.demo.supervisor import Supervisor
from ddtree_console.demo.systemctl import VERSION, mangle

_VALUED = (
    *("unit", "output", "output-fields", "after-cursor", "cursor", "since", "until", "priority", "identifier"),
    *("vacuum-time", "vacuum-size", "vacuum-files", "grep"),
)
_SWITCHES = (
    *("follow", "all", "show-cursor", "sync", "flush", "rotate", "no-pager", "quiet", "no-tail", "reverse", "utc"),
    *("no-hostname", "version", "list-boots", "full", "system", "dmesg", "disk-usage"),
)
_SHORT = {
    "u": "unit",
    "o": "output",
    "n": "lines",
    "f": "follow",
    "a": "all",
    "q": "quiet",
    "b": "boot",
    "r": "reverse",
}
_SHORT |= {"p": "priority", "t": "identifier", "S": "since", "U": "until", "c": "cursor", "l": "full", "k": "dmesg"}

Term = dict[str, set[str]]
"""field -> values: all fields must match, by any of their values"""


def terms_of(words: list[str]) -> list[Term]:
    """`A=1 B=2 + A=3`: alternatives of conditions. Usage for a word that is no match."""
    terms: list[Term] = [{}]
    for word in words:
        if word == "+":
            terms.append({})
            continue
        name, sep, value = word.partition("=")
        if not sep or not name:
            raise Usage(f"Failed to add match '{word}': Invalid argument")
        terms[-1].setdefault(name, set()).add(value)
    return [term for term in terms if term]


class Query:
    """What is wanted: every group must hold, a group holds when one of its terms does."""

    def __init__(self, given: Parsed, journal: Journal) -> None:
        self._groups: list[list[Term]] = []
        units = [mangle(name) for name in given.options.get("unit", [])]
        if units:
            own: list[Term] = [{"_SYSTEMD_UNIT": set(units)}, {"UNIT": set(units), "_PID": {"1"}}]
            self._groups.append(own)
        if given.has("boot"):
            wanted = given.last("boot").replace("-", "")
            self._groups.append([{"_BOOT_ID": {journal.boot if len(wanted) < 32 else wanted}}])
        if given.has("identifier"):
            self._groups.append([{"SYSLOG_IDENTIFIER": set(given.options["identifier"])}])
        if given.has("dmesg"):
            self._groups.append([{"_TRANSPORT": {"kernel"}}])
        terms = terms_of(given.words)
        if terms:
            self._groups.append(terms)
        levels = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
        priority = given.last("priority", "7")
        if priority not in levels and not priority.isdigit():
            raise Usage(f"Unknown log level {priority}")
        self._priority = levels.index(priority) if priority in levels else int(priority)
        self._since = (
            float(given.last("since", "@0").lstrip("@")) * 1e6 if given.last("since", "@").startswith("@") else 0
        )

    def __call__(self, entry: Entry) -> bool:
        """Whether the entry is wanted."""
        if entry.priority > self._priority or entry.realtime < self._since:
            return False
        for group in self._groups:
            if not any(all(entry.get(name) in values for name, values in term.items()) for term in group):
                return False
        return True


class Journalctl:
    """One host's journalctl."""

    def __init__(self, machine: Supervisor) -> None:
        self._machine = machine

    async def __call__(self, call: Call) -> int:
        """The exit status."""
        try:
            given = parse(call.args, _VALUED, _SWITCHES, _SHORT, optional=("lines", "boot"))
            if "" in given.options.get("lines", ()):
                # `-n 20` and `-n all` are allowed although the value is optional.
                counts = [word for word in given.words if word == "all" or word.isdigit()]
                given.options["lines"] = counts[:1]
                given.words = [word for word in given.words if word not in counts[:1]]
            query = Query(given, self._machine.journal)
        except Usage as error:
            call.err(f"journalctl: {error}")
            return 1
        if given.has("version"):
            call.out(VERSION)
            return 0
        self._machine.drain()
        if given.has("sync") or given.has("flush"):
            return 0
        if given.has("rotate") or any(given.has(f"vacuum-{what}") for what in ("time", "size", "files")):
            if not given.has("rotate") or len(given.options) > 1:
                self._machine.journal.vacuum()
            return 0
        if given.has("list-boots"):
            call.out(f" 0 {self._machine.journal.boot}")
            return 0
        try:
            return await self._print(call, given, query)
        except ValueError as error:
            call.err(f"Failed to seek to cursor: {error}")
            return 1

    async def _print(self, call: Call, given: Parsed, query: Query) -> int:
        journal, follow = self._machine.journal, given.has("follow")
        form = _Form(given, journal)
        event = journal.watch()
        try:
            # What is appended from here on belongs to the following, not to the first answer.
            end = journal.end
            last: Entry | None = None
            for entry in self._first(given, query, end):
                call.raw(form(entry))
                last = entry
                if entry.seq % 256 == 0:
                    await call.drain()
            if last is None and not follow and not given.has("quiet") and form.style != "json":
                call.out("-- No entries --")
            if given.has("show-cursor") and last:
                call.out(f"-- cursor: {journal.cursor(last)}")
            while follow:
                await call.drain()
                if journal.end == end:
                    await event.wait()
                event.clear()
                upto = min(journal.end, end + 2000)
                lines = [form(e) for e in journal.forward(end) if e.seq < upto and query(e)] if upto > end else []
                end = upto
                if lines:
                    call.raw(b"".join(lines))
            return 0
        finally:
            journal.unwatch(event)

    def _first(self, given: Parsed, query: Query, end: int) -> Iterator[Entry]:
        journal = self._machine.journal
        default = "10" if given.has("follow") and not given.has("no-tail") else "all"
        lines = (given.options.get("lines") or ["10" if given.has("lines") else default])[-1]
        if lines != "all" and not lines.lstrip("+").isdigit():
            raise ValueError(f"number of lines {lines}")
        limit = None if lines == "all" else int(lines.lstrip("+"))
        cursor = given.last("cursor") or given.last("after-cursor")
        if cursor:
            start = journal.seek(cursor) + (1 if given.has("after-cursor") else 0)
            shown = 0
            for entry in journal.forward(start):
                if entry.seq >= end or (limit is not None and shown >= limit and not given.has("follow")):
                    return
                if query(entry):
                    shown += 1
                    yield entry
            return
        found = journal.tail(10**9 if limit is None else limit, lambda e: e.seq < end and query(e))
        yield from reversed(found) if given.has("reverse") else found


class _Form:
    """An entry as the asked output format has it, newline included."""

    def __init__(self, given: Parsed, journal: Journal) -> None:
        self.style, self._journal = given.last("output", "short"), journal
        self._all = given.has("all")
        only = given.listed("output-fields")
        self._only = frozenset(only) if only else None

    def __call__(self, entry: Entry) -> bytes:
        if self.style.startswith("json"):
            return self._journal.as_json(entry, self._all, self._only) + b"\n"
        if self.style == "cat":
            return entry.message + b"\n"
        pattern = "%Y-%m-%dT%H:%M:%S+0000" if self.style == "short-iso" else "%b %d %H:%M:%S"
        when = time.strftime(pattern, time.gmtime(entry.realtime / 1e6))
        name, pid = entry.fields.get("SYSLOG_IDENTIFIER", "unknown"), entry.fields.get("_PID", "0")
        return f"{when} {self._journal.host} {name}[{pid}]: ".encode() + entry.message + b"\n"
