"""Before a deployment: host, difference, running requests, what happens on failure. Enter deploys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input

from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import DeployPreview, Preflight
from ddtree_console.services.errors import HostError
from ddtree_console.ui.forms import seconds
from ddtree_console.ui.paint import Piece, Row, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views.diff import confirm_rows
from ddtree_console.ui.views.preflight import gate_rows
from ddtree_console.ui.widgets.rows import Rows

ON_FAILURE = ("back", "stop", "leave")
LOCKED, REFUSED = 6, 7


class ConfirmScreen(ConsoleScreen):
    """`d`. `edited`: a profile as edited, else the service's own, or another chosen with `p`.

    preflight: of exactly that profile, where it was made already; else the host is asked here.
    """

    not_here = frozenset({"deploy", "zoom"})
    CSS_PATH = "confirm.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send_deploy", "deploy now", id="send"),
        Binding("p", "profile", "profile", id="profile", tooltip="the next profile"),
        Binding("o", "on_failure", "on failure", id="on_failure", tooltip="go back, stop, or leave as it is"),
        Binding("r", "reason", "reason", id="reason", tooltip="why, for the history"),
        Binding("t", "hold", "hold", id="hold", tooltip="seconds without a restart before the commit"),
        Binding("F", "force", "force", id="force", tooltip="override a refusal; needs a reason"),
        Binding("T", "take_over", "take over", id="take_over", tooltip="end the transaction that holds the lock"),
    ]

    def __init__(
        self, key: str, edited: Profile | None = None, profile: str = "", preflight: Preflight | None = None
    ) -> None:
        super().__init__(key)
        self._preflight = preflight
        self.checking = self._pending = False
        self._unchecked = ""
        self._edited = edited
        self._profile = profile
        self._names: list[str] = []
        self._preview: DeployPreview | None = None
        self._note: tuple[str, str] = ("asking the host…", "dim")
        self._on_failure = 0
        self._force = self._takeover = self._locked = self._sending = False

    def body(self) -> Iterable[Widget]:
        """Choices, fields, what would happen."""
        yield Rows(id="head", classes="-auto", focus=False)
        with Horizontal(id="fields"):
            yield Input(id="hold", placeholder="hold: seconds", max_length=6)
            yield Input(id="reason", placeholder="reason (needed with force)", max_length=300)
        yield Rows(id="main")

    def on_mount(self) -> None:
        """The service's own profile first."""
        services = self.console_app.need_services()
        slot = services.fleet.service(self.key)
        self._profile = self._edited.name if self._edited is not None else self._profile or slot.profile
        self._names = sorted(services.fleet.profiles)
        self._ask(self._preflight is None)

    def _ask(self, check: bool = True) -> None:
        self._preview = None
        if check:
            self._preflight, self.checking, self._unchecked = None, True, ""
            self.run_worker(self._check(), exit_on_error=False, exclusive=True, group="preflight")
        self._note = ("asking the host…", "dim")
        self.run_worker(self._load(), exit_on_error=False, exclusive=True, group="preview")
        self.redraw()

    async def _load(self) -> None:
        what = self._edited if self._edited is not None else self._profile
        try:
            self._preview = await self.console_app.need_services().preview(self.key, what)
            self._note = ("", "")
        except (HostError, ValueError) as error:
            self._note = (str(error), "bad")
        self.redraw()

    async def _check(self) -> None:
        what = self._edited if self._edited is not None else self._profile
        try:
            self._preflight = await self.console_app.need_services().preflight(self.key, what)
        except (HostError, ValueError) as error:
            self._unchecked = str(error) or type(error).__name__
        self.checking = False
        self.redraw()
        if self._pending and self.is_current:
            self._pending = False
            self._note = ("", "")
            self.action_send_deploy()

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """DEPLOY? and the service."""
        host, _, name = self.key.partition("/")
        return [(" DEPLOY?  ", "title"), (f"{host} / {name}", "bold")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """The choices and the preview."""
        pane, head = self.query_one("#main", Rows), self.query_one("#head", Rows)
        service = snapshot.service(self.key)
        wide = max(18, head.size.width - 1)
        edited = " (edited, not saved)" if self._edited is not None else ""
        rows: list[Row] = [row(("  profile     ", "dim"), (host_text(self._profile + edited, 120), "bold"))]
        what = {"back": "go back by itself", "stop": "stop the unit", "leave": "leave it as it is"}
        choice = ON_FAILURE[self._on_failure]
        then = f": {host_text(self._preview.on_failure, 120)}" if self._preview is not None and choice == "back" else ""
        rows.append(row(("  if it fails ", "dim"), (what[choice] + then, "" if choice == "back" else "warn")))
        if service is not None and service.lock:
            rows += wrap(f"⊘ locked: {host_text(service.lock, 200)}", wide, "  ", "warn")
        if self._force:
            rows.append(row(("  force: refusals are overridden, with the reason in the history", "warn")))
        if self._takeover:
            rows.append(row(("  take over: the running transaction is killed first", "warn")))
        head.show(rows)
        body = max(18, pane.size.width - 1)
        notes = wrap(host_text(self._note[0]), body, "  ", self._note[1]) if self._note[0] else []
        checks = gate_rows(self._preflight, body, self._force, running=self.checking, problem=self._unchecked)
        shown = confirm_rows(self._preview, body, self._force, checks) if self._preview is not None else checks
        pane.show([*notes, *shown])

    def action_profile(self) -> None:
        """The next profile."""
        if self._edited is not None or not self._names:
            return
        at = self._names.index(self._profile) if self._profile in self._names else -1
        self._profile = self._names[(at + 1) % len(self._names)]
        self._ask()

    def action_on_failure(self) -> None:
        """The next choice."""
        self._on_failure = (self._on_failure + 1) % len(ON_FAILURE)
        self.redraw()

    def action_reason(self) -> None:
        """Into the field."""
        self.query_one("#reason", Input).focus()

    def action_hold(self) -> None:
        """Into the field."""
        self.query_one("#hold", Input).focus()

    def action_force(self) -> None:
        """On or off; asks for the reason."""
        self._force = not self._force
        if self._force and not self.query_one("#reason", Input).value.strip():
            self.action_reason()
        self.redraw()

    def action_take_over(self) -> None:
        """On or off, where there is a lock."""
        service = self.console_app.snapshot.service(self.key)
        if self._locked or (service is not None and service.lock):
            self._takeover = not self._takeover
            self.redraw()

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.query_one("#main").focus()

    def _refusal(self) -> str:
        preview, reason = self._preview, self.query_one("#reason", Input).value.strip()
        if preview is None:
            return self._note[0] or "still asking the host"
        if preview.refusals and not (self._force and preview.forceable):
            how = "; F forces, with a reason" if preview.forceable else ""
            return f"refused: {preview.refusals[0]}{how}"
        failed = self._preflight.failed if self._preflight is not None else ()
        if failed and not self._force:
            return f"refused: check {failed[0].name} failed: {failed[0].evidence}; F forces, with a reason"
        if self._force and not reason:
            return "force needs a typed reason: r"
        return ""

    def action_send_deploy(self) -> None:
        """Enter."""
        if self.checking and self._preview is not None and not self._refusal():
            self._pending = True
            self._note = ("deploys as soon as the checks pass; esc leaves", "work")
            self.redraw()
            return
        hold, refusal = self._hold(), self._refusal()
        if isinstance(hold, str):
            refusal = hold
        if refusal or self._sending:
            if refusal:
                self.console_app.tell(refusal, "warning")
            return
        self._sending = True
        self._note = ("asking the host to start the transaction…", "work")
        self.redraw()
        value = hold if isinstance(hold, float) else None
        self.run_worker(self._send(value), exit_on_error=False, group="send")

    def _hold(self) -> float | str | None:
        text = self.query_one("#hold", Input).value.strip()
        if not text:
            return None
        value = seconds(text)
        return f"hold: {text!r} is not a number of seconds" if value is None else value

    async def _send(self, hold: float | None) -> None:
        app = self.console_app
        try:
            await app.need_services().deploy(
                self.key,
                self._edited if self._edited is not None else self._profile,
                on_failure=ON_FAILURE[self._on_failure],
                hold=hold,
                reason=self.query_one("#reason", Input).value.strip(),
                force=self._force,
                takeover=self._takeover,
            )
        except HostError as error:
            self._locked = error.code == LOCKED
            more = "; T takes over" if self._locked else ("; F forces, with a reason" if error.code == REFUSED else "")
            self._note = (f"✖ {error}{more}", "bad")
            self._sending = False
            self.redraw()
            return
        app.pop_screen()
        app.open_deploy(self.key)

    def copy_text(self) -> str:
        """The exact command."""
        return self._preview.command if self._preview is not None else ""
