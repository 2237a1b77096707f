"""The launch editor: flags, speculation, environment, and beside them what the host says before anything changes."""

from __future__ import annotations

from collections.abc import Iterable

from textual import events, on
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from ddtree_console.domain.build import Build, FlagMark
from ddtree_console.domain.engines.base import FlagHelp
from ddtree_console.domain.findings.apply import make
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.services.errors import HostError
from ddtree_console.ui import forms
from ddtree_console.ui.paint import Piece, Row, heading, host_text, row, wrap
from ddtree_console.ui.screens.launch_keys import LaunchKeys
from ddtree_console.ui.views.diff import diff_rows
from ddtree_console.ui.views.finding import applied_rows
from ddtree_console.ui.views.flagmarks import absent, by_field, sentence, short
from ddtree_console.ui.views.preflight import preflight_rows
from ddtree_console.ui.widgets.addflag import AddFlag
from ddtree_console.ui.widgets.field import FieldInput, FieldRow
from ddtree_console.ui.widgets.memory_bar import MemoryBar
from ddtree_console.ui.widgets.rows import Rows

QUIET = 0.3
"""seconds after the last key before the host is asked for the difference again."""
SOON = 0.1
"""seconds after the last key before marks and memory are computed again, which asks nobody."""
NARROW = 100
"""columns below which the checks stand in the same pane as the differences."""


class LaunchScreen(LaunchKeys):
    """`e`, and `a` with a remedy. Edits a copy: ctrl+s writes it, `d` and the second `a` deploy it."""

    not_here = frozenset({"edit", "deploy", "check", "apply"})
    CSS_PATH = "launch.tcss"
    _own: tuple[FlagHelp, ...] = ()
    """the flags that the engine's own editor list names"""
    _fields: tuple[FlagHelp, ...] = ()
    _offered_of: Build | None = None
    """the build whose flags the form knows by now"""
    _note: tuple[str, str] = ("reading the profiles…", "dim")
    _due = 0
    _added: tuple[str, ...] = ()
    """names of flags that were added to the form by hand"""

    def body(self) -> Iterable[Widget]:
        """Form at the left; memory, checks and differences at the right; help below."""
        with Horizontal(id="both"):
            with Vertical(id="left"):
                yield VerticalScroll(id="form", can_focus=False)
                yield Static("environment, one NAME=value a line", id="env-label", markup=False)
                yield TextArea(id="env", show_line_numbers=False)
            with Vertical(id="right"):
                yield MemoryBar(id="memory")
                yield Rows(id="preflight")
                yield Rows(id="main")
        yield Rows(id="help", classes="-auto", focus=False)

    def on_mount(self) -> None:
        """Reads the profiles."""
        self.run_worker(self._load(), exit_on_error=False)

    def _names(self) -> list[str]:
        """Profiles to go on from, best first: what failed last, what is committed, what the fleet names."""
        service = self.console_app.snapshot.service(self.key)
        names = [self.console_app.need_services().fleet.service(self.key).profile]
        if service is not None:
            names.insert(0, service.release.profile)
            tx = service.tx
            if tx is not None and tx.what == "deploy":
                names.insert(0, tx.profile)
            tried = [a.profile for a in tx.attempts if a.target == self.release] if tx is not None else []
            names = [*tried, *names]
        return names

    def _tried(self) -> str:
        """The release to go on from: the one that the remedy is for, else one that was deployed and never saved."""
        service = self.console_app.snapshot.service(self.key)
        tx = service.tx if service is not None else None
        if self.release or tx is None or tx.what != "deploy":
            return self.release
        return tx.target if tx.profile not in self.profiles else ""

    async def _load(self) -> None:
        services = self.console_app.need_services()
        try:
            self.profiles = await services.profiles()
        except (HostError, OSError, ValueError) as error:
            self._say(str(error), "bad")
            return
        base, tried = None, self._tried()
        if tried:
            try:
                base = await services.kept_profile(self.key, tried)
            except HostError as error:
                self.console_app.problem(error)
        base = base or next((self.profiles[n] for n in self._names() if n in self.profiles), None)
        if base is None:
            self._say("no profile of this service could be read", "bad")
            return
        await self.fill(base)
        start = self.start
        if start is not None:
            self.check_host(start)

    def _say(self, text: str, style: str) -> None:
        self._note = (text, style)
        self.redraw()

    async def fill(self, base: Profile) -> None:
        """As LaunchKeys.fill."""
        from ddtree_console.domain.engines.registry import get

        self.base = base
        self.applied = make(base, self.remedy) if self.remedy is not None else None
        start = self.applied.profile if self.applied is not None else base
        build = self.preflight.build if self.preflight is not None else None
        self._own = tuple(get(base.engine).editor_flags())
        self._added = ()
        self._fields = forms.fields(self._own, start, build, tuple(base.flags))
        shown = forms.texts(start, self._fields)
        form = self.query_one("#form", VerticalScroll)
        await form.remove_children()
        await form.mount_all([*(FieldRow(f, shown[f.name]) for f in self._fields if f.kind != "env"), AddFlag()])
        self._offered_of = None
        self.query_one("#env", TextArea).text = shown[forms.ENV.name]
        # A remedy is there to be looked at and deployed: its second key must not land in a text field.
        if self.remedy is None and not isinstance(self.focused, (Input, TextArea)):
            self.action_into()
        self._show_changed()
        self.forecast()
        self.show_marks()
        self._changed()

    def action_into(self) -> None:
        """Into the first field."""
        first = next(iter(self.query(FieldInput)), None)
        if first is not None:
            first.focus()

    def built(self) -> forms.Built:
        """As LaunchKeys.built."""
        start = self.start
        if start is None:
            return forms.Built(None, {"": "no profile yet"})
        entered = {f.field.name: f.value for f in self.query(FieldInput)}
        entered[forms.ENV.name] = self.query_one("#env", TextArea).text
        return forms.build(start, self._fields, entered)

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _typed(self) -> None:
        self._leaving = False
        self._due += 1
        due = self._due
        self._show_changed()
        self.set_timer(SOON, lambda: self.forecast() if due == self._due else None)
        self.set_timer(QUIET, lambda: self._changed() if due == self._due else None)

    def _show_changed(self) -> None:
        if self.base is None:
            return
        errors, before = self.built().errors, forms.texts(self.base, self._fields)
        for line in self.query(FieldRow):
            value = line.query_one(FieldInput).value
            line.set_class(line.field.name in errors, "-wrong")
            line.set_class(value != before.get(line.field.name, ""), "-changed")
        self._show_help()

    def show_marks(self) -> None:
        """As LaunchKeys.show_marks."""
        build, start = self.preflight.build if self.preflight is not None else None, self.start
        if start is not None and build is not None and build is not self._offered_of:
            self._know(build)
        marks = by_field(self.marks, self.built().profile or start) if start is not None else {}
        own = {f.name for f in self._own}
        for line in self.query(FieldRow):
            mark = marks.get(line.field.name)
            none = mark is None and line.field.name in own and absent(line.field.name, build)
            line.mark(("absent", "dim") if none else short(mark))
        self._panes()
        self._show_help()

    def _changed(self) -> None:
        self._show_changed()
        built = self.built()
        if built.profile is None:
            self._say("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "bad")
            return
        self.run_worker(self._compare(built.profile), exit_on_error=False, exclusive=True, group="compare")

    async def _compare(self, profile: Profile) -> None:
        try:
            self.saw(await self.console_app.need_services().preview(self.key, profile), profile)
        except (HostError, ValueError) as error:
            self._say(str(error), "bad")
            return
        self._say("", "")

    @on(events.DescendantFocus)
    def _show_help(self) -> None:
        focused = self.focused
        field = focused.field if isinstance(focused, FieldInput) else None
        if isinstance(focused, TextArea):
            field = forms.ENV
        keys = "a deploys it; enter goes into the fields" if self.remedy is not None else "enter goes into the fields"
        text, wrong, about = f"{keys}; c, d, y, R and q work here", "", ("", "")
        if field is not None:
            bounds = forms.limits(field)
            text = f"{field.name}: {field.help}" + (f" ({bounds})" if bounds else "") + " · esc leaves the field"
            wrong = self.built().errors.get(field.name, "")
            about = sentence(self._mark_of(field.name))
            build = self.preflight.build if self.preflight is not None else None
            if not about[0] and field in self._own and absent(field.name, build):
                about = ("this build has no such flag", "warn")
        pane = self.query_one("#help", Rows)
        wide = max(18, pane.size.width - 1)
        first = (f"✖ {wrong}", "bad") if wrong else about
        pane.show(
            [*(wrap(first[0], wide, " ", first[1]) if first[0] else []), *wrap(host_text(text), wide, " ", "dim")][:2]
        )

    def _mark_of(self, name: str) -> FlagMark | None:
        start = self.start
        return by_field(self.marks, self.built().profile or start).get(name) if start is not None else None

    def _know(self, build: Build) -> None:
        """A build that was read: its flags complete names, and tell what the editor's own list does not."""
        self._offered_of = build
        for line in self.query(AddFlag):
            line.offer(sorted(f.name for f in build.flags))
        self._fields = self._all_fields()
        known = {f.name: f for f in self._fields}
        for row_ in self.query(FieldRow):
            row_.take(known.get(row_.field.name, row_.field))

    def _all_fields(self) -> tuple[FlagHelp, ...]:
        build = self.preflight.build if self.preflight is not None else None
        stored = tuple(self.base.flags) if self.base is not None else ()
        return forms.fields(self._own, self.start, build, (*stored, *self._added))

    @on(AddFlag.Added)
    async def _add(self, event: AddFlag.Added) -> None:
        """A row for a flag that has none; where it has one, that gets the focus."""
        found = next((x for x in self.query(FieldInput) if x.field.name == event.name), None)
        if found is None:
            self._added = (*self._added, event.name)
            self._fields = self._all_fields()
            field = next(f for f in self._fields if f.name == event.name)
            line = FieldRow(field, "on" if field.kind == "bool" else "")
            await self.query_one("#form", VerticalScroll).mount(line, before=self.query_one(AddFlag))
            found = line.query_one(FieldInput)
        found.focus()

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """LAUNCH, the service and the profile."""
        host, _, name = self.key.partition("/")
        base = f"   {self.base.name}" if self.base is not None else ""
        edited = ("  with the remedy" if self.remedy is not None else "  edited") if self.edited() else ""
        return [(" LAUNCH  ", "title"), (f"{host} / {name}", "bold"), (host_text(base, 120), ""), (edited, "work")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Checks, differences and the command."""
        self._panes()
        self._show_help()

    def _memory(self) -> Estimate | None:
        """The forecast; before there is one, why not. None: this engine has no model of memory."""
        if self.estimate is not None or (self.preflight is not None and not self.checking):
            return self.estimate
        why = "the host is being asked" if self.checking else "the host could not be asked: c asks again"
        return Estimate(problems=(why,))

    def _panes(self) -> None:
        self.query_one(MemoryBar).estimate = self._memory()
        main, checks = self.query_one("#main", Rows), self.query_one("#preflight", Rows)
        narrow = self.size.width < NARROW
        wide = max(18, main.size.width - 1)
        known = self._preflight_rows(wide if narrow else max(18, checks.size.width - 1))
        rows: list[Row] = wrap(host_text(self._note[0]), wide, " ", self._note[1]) if self._note[0] else []
        if self.remedy is not None and self.applied is not None and self.base is not None:
            rows.append(heading("REMEDY", "a deploys it", wide))
            rows += wrap(host_text(self.remedy.text), wide, "  ", "bold")
            rows += applied_rows(self.base, self.applied, wide, "  ")
        if narrow:
            rows += known
        else:
            checks.show(known)
        if self.seen is not None:
            for text in (*self.seen.refusals, *self.seen.warnings):
                rows += wrap("▲ " + host_text(text), wide, " ", "warn")
            rows += diff_rows("AGAINST WHAT RUNS NOW", self.seen.diff_running, wide)
            rows += diff_rows("AGAINST THE STORED PROFILE", self.seen.diff_stored, wide)
            rows += [row(""), heading("COMMAND", "y copies it", wide)]
            rows += wrap(host_text(self.seen.command), wide, " ", "dim")
        main.show(rows)

    def _preflight_rows(self, wide: int) -> list[Row]:
        return preflight_rows(
            self.preflight,
            self.marks,
            wide,
            running=self.checking,
            stale=self.stale(),
            problem=self.preflight_problem,
        )
