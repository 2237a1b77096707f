"""The launch editor: flags, speculation, environment; what would change, before anything does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea

from ddtree_console.domain.engines.base import FlagHelp
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import DeployPreview
from ddtree_console.services.errors import HostError
from ddtree_console.ui import forms
from ddtree_console.ui.paint import Piece, Row, heading, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views.diff import diff_rows
from ddtree_console.ui.widgets.field import FieldInput, FieldRow
from ddtree_console.ui.widgets.rows import Rows

QUIET = 0.3
"""seconds after the last key before the difference is computed again."""


class LaunchScreen(ConsoleScreen):
    """`e`. Edits a copy of a profile; nothing is written before ctrl+s, nothing deployed before `d` and enter."""

    not_here = frozenset({"edit", "deploy"})
    CSS_PATH = "launch.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "save", "save as", id="save", priority=True, tooltip="save as a profile that extends this one"
        ),
        Binding("d", "deploy_edited", "deploy", id="deploy_edited", tooltip="preview and deploy what is edited"),
        Binding("enter", "into", "edit fields", id="into", show=True),
    ]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._profiles: Mapping[str, Profile] = {}
        self._base: Profile | None = None
        self._fields: tuple[FlagHelp, ...] = ()
        self._preview: DeployPreview | None = None
        self._note: tuple[str, str] = ("reading the profiles…", "dim")
        self._help = ""
        self._leaving = False
        self._timer_due = 0

    def body(self) -> Iterable[Widget]:
        """Form at the left, differences at the right, help below."""
        with Horizontal(id="both"):
            with Vertical(id="left"):
                yield VerticalScroll(id="form", can_focus=False)
                yield Static("environment, one NAME=value a line", id="env-label", markup=False)
                yield TextArea(id="env", show_line_numbers=False)
            yield Rows(id="main")
        yield Rows(id="help", classes="-auto", focus=False)

    def on_mount(self) -> None:
        """Reads the profiles."""
        self.run_worker(self._load(), exit_on_error=False)

    def _base_name(self) -> str:
        """What failed last, else what is committed, else what the fleet names: the one to go on from."""
        services = self.console_app.need_services()
        service = self.console_app.snapshot.service(self.key)
        names = [services.fleet.service(self.key).profile]
        if service is not None:
            names.insert(0, service.release.profile)
            if service.tx is not None and service.tx.what == "deploy":
                names.insert(0, service.tx.profile)
        return next((n for n in names if n in self._profiles), "")

    async def _load(self) -> None:
        try:
            self._profiles = await self.console_app.need_services().profiles()
        except (HostError, OSError, ValueError) as error:
            self._note = (str(error), "bad")
            self.redraw()
            return
        base = self._profiles.get(self._base_name())
        if base is None:
            self._note = ("no profile of this service could be read", "bad")
            self.redraw()
            return
        await self._fill(base)

    async def _fill(self, base: Profile) -> None:
        from ddtree_console.domain.engines.registry import get

        self._base = base
        self._fields = forms.fields(tuple(get(base.engine).editor_flags()))
        shown = forms.texts(base, self._fields)
        form = self.query_one("#form", VerticalScroll)
        await form.remove_children()
        await form.mount_all([FieldRow(f, shown[f.name]) for f in self._fields if f.kind != "env"])
        self.query_one("#env", TextArea).text = shown[forms.ENV.name]
        if not isinstance(self.focused, (Input, TextArea)):
            self.action_into()
        self._changed()

    def action_into(self) -> None:
        """Into the first field."""
        first = next(iter(self.query(FieldInput)), None)
        if first is not None:
            first.focus()

    def _entered(self) -> dict[str, str]:
        out = {f.field.name: f.value for f in self.query(FieldInput)}
        out[forms.ENV.name] = self.query_one("#env", TextArea).text
        return out

    def built(self) -> forms.Built:
        """The profile as edited, or what is wrong."""
        if self._base is None:
            return forms.Built(None, {"": "no profile yet"})
        return forms.build(self._base, self._fields, self._entered())

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _typed(self) -> None:
        self._leaving = False
        self._timer_due += 1
        due = self._timer_due
        self._mark()
        self.set_timer(QUIET, lambda: self._changed() if due == self._timer_due else None)

    def _mark(self) -> None:
        if self._base is None:
            return
        errors, before = self.built().errors, forms.texts(self._base, self._fields)
        for line in self.query(FieldRow):
            value = line.query_one(FieldInput).value
            line.set_class(line.field.name in errors, "-wrong")
            line.set_class(value != before.get(line.field.name, ""), "-changed")
        self._show_help()

    def _changed(self) -> None:
        self._mark()
        built = self.built()
        if built.profile is None:
            self._note = ("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "bad")
            self.redraw()
            return
        self.run_worker(self._compare(built.profile), exit_on_error=False, exclusive=True, group="compare")

    async def _compare(self, profile: Profile) -> None:
        try:
            self._preview = await self.console_app.need_services().preview(self.key, profile)
            self._note = ("", "")
        except (HostError, ValueError) as error:
            self._note = (str(error), "bad")
        self.redraw()

    @on(events.DescendantFocus)
    def _show_help(self) -> None:
        focused = self.focused
        field = focused.field if isinstance(focused, FieldInput) else None
        if isinstance(focused, TextArea):
            field = forms.ENV
        text = "enter goes into the fields; e, d, y, R and q work here"
        wrong = ""
        if field is not None:
            bounds = forms.limits(field)
            text = f"{field.name}: {field.help}" + (f" ({bounds})" if bounds else "") + " · esc leaves the field"
            wrong = self.built().errors.get(field.name, "")
        pane = self.query_one("#help", Rows)
        wide = max(18, pane.size.width - 1)
        pane.show([*(wrap(f"✖ {wrong}", wide, " ", "bad") if wrong else []), *wrap(text, wide, " ", "dim")][:2])

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """LAUNCH, the service and the profile."""
        host, _, name = self.key.partition("/")
        base = f"   {self._base.name}" if self._base is not None else ""
        return [
            (" LAUNCH  ", "title"),
            (f"{host} / {name}", "bold"),
            (base, ""),
            ("  edited" if self._edited() else "", "work"),
        ]

    def _edited(self) -> bool:
        return self._base is not None and self.built().profile != self._base

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Differences and the command."""
        pane = self.query_one("#main", Rows)
        wide = max(18, pane.size.width - 1)
        rows: list[Row] = wrap(host_text(self._note[0]), wide, " ", self._note[1]) if self._note[0] else []
        if self._preview is not None:
            for text in (*self._preview.refusals, *self._preview.warnings):
                rows += wrap("▲ " + host_text(text), wide, " ", "warn")
            rows += diff_rows("AGAINST WHAT RUNS NOW", self._preview.diff_running, wide)
            rows += diff_rows("AGAINST THE STORED PROFILE", self._preview.diff_stored, wide)
            rows += [row(""), heading("COMMAND", "y copies it", wide)]
            rows += wrap(host_text(self._preview.command), wide, " ", "dim")
        pane.show(rows)
        self._show_help()

    def action_deploy_edited(self) -> None:
        """The preview of `d`, for what is edited."""
        built, app = self.built(), self.console_app
        if built.profile is None or self._base is None:
            app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
        elif built.profile == self._base:
            app.confirm_deploy(self.key, None, self._base.name)
        else:
            app.confirm_deploy(self.key, forms.renamed(built.profile, self._base.name))

    def action_save(self) -> None:
        """Asks for the new profile's name."""
        from ddtree_console.ui.screens.save import SaveScreen

        built, app = self.built(), self.console_app
        if built.profile is None or self._base is None:
            app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
            return
        app.push_screen(SaveScreen(self._base.name, tuple(self._profiles)), self._save)

    def _save(self, name: str | None) -> None:
        if name:
            self.run_worker(self._write(name), exit_on_error=False)

    async def _write(self, name: str) -> None:
        app, built = self.console_app, self.built()
        if built.profile is None or self._base is None:
            return
        try:
            services = app.need_services()
            path = await services.save_profile(self._base.name, name, built.profile)
            self._profiles = await services.profiles()
        except (HostError, OSError, ValueError) as error:
            app.problem(error)
            return
        app.tell(f"saved {path}, extends {self._base.name}")
        saved = self._profiles.get(name)
        if saved is not None:
            await self._fill(saved)

    def may_leave(self) -> bool:
        """False, once, while there are edits that are not saved."""
        if not self._edited() or self._leaving:
            return True
        self._leaving = True
        self.console_app.tell("not saved: ctrl+s saves; once more drops the edits", "warning")
        return False

    def copy_text(self) -> str:
        """The exact command."""
        return self._preview.command if self._preview is not None else ""
