"""What the console's keys do. Screens and their modules are imported when a key first needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, SystemCommand

from ddtree_console.services.errors import HostError, NoFleet
from ddtree_console.ui.paint import host_text
from ddtree_console.ui.screens.base import ConsoleScreen

if TYPE_CHECKING:
    from ddtree_console.domain.findings.types import Finding, Remedy
    from ddtree_console.domain.snapshot import FleetSnapshot, ServiceSnapshot
    from ddtree_console.domain.spec import Profile
    from ddtree_console.services.api import Console, Preflight


class OperatorActions(App[str]):
    """Mixed into the app: navigation, rollback, deploy, copy."""

    services: Console | None
    demo: bool
    countdown_s: float
    copies: Path | None

    @property
    def snapshot(self) -> FleetSnapshot:
        """The newest snapshot."""
        raise NotImplementedError  # the app brings it; Textual's metaclass leaves no room for ABC

    # what is chosen

    def target_key(self) -> str:
        """HOST/SERVICE of our topmost screen, '' for none."""
        stack = self.screen_stack if self._running else []
        return next((s.target() for s in reversed(stack) if isinstance(s, ConsoleScreen)), "")

    def typing(self) -> bool:
        """Whether a text field has the focus; tested by name, since the first frame needs no text field."""
        names = {kind.__name__ for kind in type(self.screen.focused).__mro__}
        return bool(names & {"Input", "TextArea"})

    def in_flight(self, key: str) -> bool:
        """Whether a transaction of that service runs."""
        service = self.snapshot.service(key) if key else None
        return service is not None and service.tx is not None and service.tx.running

    def need_services(self) -> Console:
        """The services; RuntimeError before they are loaded (keys are greyed until then)."""
        if self.services is None:
            raise RuntimeError("the services are not loaded yet")
        return self.services

    # telling

    def tell(self, text: str, severity: Any = "information", timeout: float = 12.0) -> None:
        """A notice; never markup."""
        self.notify(host_text(text), severity=severity, timeout=timeout, markup=False)

    def problem(self, error: Exception) -> None:
        """A notice of what went wrong, with cause and next step."""
        self.tell(str(error) or type(error).__name__, "error", 20.0)

    # screens

    def show_no_fleet(self, error: NoFleet | None) -> None:
        """The way in, instead of an empty table."""
        from ddtree_console.ui.screens.empty import EmptyScreen

        searched = error.searched if error is not None else ()
        self._open(EmptyScreen(searched))

    def open_host(self, key: str) -> None:
        """The host of a service."""
        from ddtree_console.ui.screens.host import HostScreen

        self._open(HostScreen(key))

    def open_deploy(self, key: str) -> None:
        """The transaction of a service."""
        from ddtree_console.ui.screens.deploy import DeployScreen

        self._open(DeployScreen(key))

    def _open(self, screen: ConsoleScreen) -> None:
        """Puts a screen on top, unless it is there already."""
        top = self.screen
        if isinstance(top, ConsoleScreen) and type(top) is type(screen) and top.key == screen.key:
            top.redraw()
            return
        self.push_screen(screen)

    def action_deploy(self) -> None:
        """Watch what runs, else preview."""
        key = self.target_key()
        if self.in_flight(key):
            self.open_deploy(key)
            return
        self.confirm_deploy(key, None)

    def confirm_deploy(
        self, key: str, edited: Profile | None, profile: str = "", preflight: Preflight | None = None
    ) -> None:
        """Everything that `d` shows before it acts; `edited`: a profile as edited and not saved, else one by name.

        preflight: of that very profile, where there is one.
        """
        from ddtree_console.ui.screens.confirm import ConfirmScreen

        if not key or self.services is None:
            return
        self._open(ConfirmScreen(key, edited, profile, preflight))

    def action_rollback(self, to: str) -> None:
        """The countdown."""
        from ddtree_console.ui.screens.countdown import CountdownScreen

        key = self.target_key()
        if key and self.services is not None:
            self.push_screen(CountdownScreen(key, to, self.countdown_s), self._rolled)

    def _rolled(self, key: str | None) -> None:
        if key:
            self.open_deploy(key)

    def action_edit(self) -> None:
        """The launch editor."""
        from ddtree_console.ui.screens.launch import LaunchScreen

        if self.services is not None:
            self._open(LaunchScreen(self.target_key()))

    def finding(self, key: str) -> Finding | None:
        """What was found about a service, None for nothing."""
        if not key:
            return None
        from ddtree_console.ui.views.finding import finding_of

        return finding_of(self.snapshot.service(key))

    def action_apply(self) -> None:
        """The first remedy's edits, made in the launch editor; a remedy for the host's own shell is shown instead."""
        key = self.target_key()
        found = self.finding(key)
        if found is None or not found.remedies:
            self.tell(f"{key}: no remedy is known; x shows what is")
        elif found.remedies[0].edits:
            self.open_remedy(key, found.remedies[0])
        else:
            self.action_why()

    def open_remedy(self, key: str, remedy: Remedy) -> None:
        """The launch editor with a remedy's edits, made on what the finding is about."""
        from ddtree_console.ui.screens.launch import LaunchScreen
        from ddtree_console.ui.views.finding import release_of

        if self.services is not None:
            self._open(LaunchScreen(key, remedy, release_of(self.snapshot.service(key))))

    def action_why(self) -> None:
        """Verdict, evidence, remedy."""
        from ddtree_console.ui.screens.why import WhyScreen

        self._open(WhyScreen(self.target_key()))

    def action_journal(self) -> None:
        """The journal, full screen."""
        from ddtree_console.ui.screens.journal import JournalScreen

        self._open(JournalScreen(self.target_key()))

    def action_history(self) -> None:
        """Attempts of the service."""
        from ddtree_console.ui.screens.history import HistoryScreen

        self._open(HistoryScreen(self.target_key()))

    def action_check(self) -> None:
        """Checks."""
        from ddtree_console.ui.screens.check import CheckScreen

        self._open(CheckScreen(self.target_key()))

    def action_keys(self) -> None:
        """All keys."""
        from ddtree_console.ui.screens.keys import KeysScreen

        self._open(KeysScreen(self.target_key()))

    def action_extend(self) -> None:
        """More time for the running transaction."""
        key = self.target_key()
        if self.in_flight(key):
            self.run_worker(self._request(key, "extend"), exit_on_error=False, group="act")

    async def _request(self, key: str, what: str) -> None:
        try:
            await self.need_services().request(key, what)
        except HostError as error:
            self.problem(error)
        else:
            self.tell(f"{key}: {what} asked")

    # going and leaving

    def action_step_back(self) -> None:
        """Esc: out of a text field, else out of a zoomed pane, else the screen before."""
        if self.typing():
            self.screen.query_one("#main").focus()
        elif self.screen.maximized is not None:
            self.screen.minimize()
        elif len(self.screen_stack) > 1 and getattr(self.screen, "may_leave", lambda: True)():
            self.pop_screen()

    def action_leave(self) -> None:
        """q: back, and from the fleet quit."""
        if len(self.screen_stack) > 1 and not getattr(self.screen, "is_home", False):
            self.action_step_back()
            return
        if self.demo:
            from ddtree_console.ui.screens.ask import AskScreen

            text = "Quit? The demo's hosts live in this program and end with it."
            self.push_screen(AskScreen(text, "q", "quit"), self._quit_if)
            return
        self.exit(message=self._still_running())

    def _quit_if(self, yes: bool | None) -> None:
        if yes:
            self.exit(message="The demo has ended, and its hosts with it.")

    def _still_running(self) -> str | None:
        running: list[ServiceSnapshot] = [s for h in self.snapshot.hosts for s in h.services if self.in_flight(s.key)]
        names = ", ".join(s.key for s in running)
        return f"Goes on on its host without this console: {names}" if names else None

    def action_zoom(self) -> None:
        """One pane on the whole screen, and back."""
        screen = self.screen
        if screen.maximized is not None:
            screen.minimize()
        elif screen.focused is not None:
            screen.maximize(screen.focused)

    # copying

    def action_copy(self) -> None:
        """What the screen offers."""
        if isinstance(self.screen, ConsoleScreen):
            self.copy(self.screen.copy_text())

    def copy(self, text: str) -> None:
        """Into the terminal's clipboard by OSC 52 and into a file, secrets masked."""
        from ddtree_console.ui.clipboard import SMALL, masked_lines

        if not text.strip():
            self.tell("nothing to copy here")
            return
        safe, hidden = masked_lines(text)
        if len(safe) <= SMALL:
            self.copy_to_clipboard(safe)
        self.run_worker(self._copied(safe, hidden), exit_on_error=False, group="copy")

    async def _copied(self, text: str, hidden: bool) -> None:
        from ddtree_console.ui.clipboard import SMALL, write_copy

        lines = text.count("\n") + 1
        what = f"{lines} line{'s' if lines > 1 else ''}"
        note = "; secrets are masked" if hidden else ""
        to = "clipboard" if len(text) <= SMALL else "too long for the clipboard"
        try:
            path = await asyncio.to_thread(write_copy, text, self.copies)
        except OSError as error:
            self.tell(f"{what}: {to}; no file: {error}{note}", "warning")
            return
        self.tell(f"{what}: {to}, and {path}{note}")

    # the palette

    def palette_commands(self, key: str) -> Iterable[SystemCommand]:
        """Commands for the chosen service, then every service, then the app."""
        for binding in self.BINDINGS:
            action, tip = getattr(binding, "action", ""), getattr(binding, "tooltip", "")
            name = action.partition("(")[0]
            arguments: tuple[object, ...] = ()
            if not tip or name in ("command_palette", "step_back") or self.check_action(name, arguments) is not True:
                continue
            title = getattr(binding, "description", "").capitalize()
            about = f"{key}: {tip}" if key else tip
            yield SystemCommand(title, about, partial(self.call_later, self.run_action, action))
        for host in self.snapshot.hosts:
            for service in host.services:
                yield SystemCommand(f"Open {service.key}", "host screen", partial(self.open_host, service.key))
        for name in ("console-dark", "console-light", "ansi-dark", "ansi-light"):
            if name in self.available_themes:
                yield SystemCommand(f"Theme {name}", "colours", partial(setattr, self, "theme", name))
