"""What the launch editor knows of an edited profile, and what its keys do with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.binding import Binding, BindingType

from ddtree_console.domain.build import FlagMark
from ddtree_console.domain.findings.apply import Applied
from ddtree_console.domain.findings.types import Remedy
from ddtree_console.domain.memory.types import Estimate
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import DeployPreview, Preflight
from ddtree_console.services.errors import HostError
from ddtree_console.ui import forms
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.screens.countdown import HELD_KEY


class LaunchKeys(ConsoleScreen):
    """The state of `e` and `a`. remedy: whose edits are made first; release: the attempt it is for, '' for none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+s", "save", "save as", id="save", priority=True, tooltip="save as a profile that extends this one"
        ),
        Binding("a", "apply_deploy", "deploy it", id="apply_deploy", tooltip="deploy the remedy as it is shown"),
        Binding("d", "deploy_edited", "deploy", id="deploy_edited", tooltip="preview and deploy what is edited"),
        Binding("c", "preflight", "check", id="preflight", tooltip="check the host again, for what is edited"),
        Binding("enter", "into", "edit fields", id="into", show=True),
    ]

    def __init__(self, key: str, remedy: Remedy | None = None, release: str = "") -> None:
        super().__init__(key)
        self.remedy, self.release = remedy, release
        self.profiles: Mapping[str, Profile] = {}
        self.base: Profile | None = None
        """as stored"""
        self.applied: Applied | None = None
        """with the remedy's edits, where there is one"""
        self.seen: DeployPreview | None = None
        self.seen_of: Profile | None = None
        self.preflight: Preflight | None = None
        self.preflight_of: Profile | None = None
        self.preflight_problem = ""
        self.checking = False
        self.marks: tuple[FlagMark, ...] = ()
        self.estimate: Estimate | None = None
        self._shown_at: float | None = None
        self._leaving = self._sending = False

    @property
    def start(self) -> Profile | None:
        """What the form began with: the stored profile, with the remedy's edits."""
        return self.applied.profile if self.applied is not None else self.base

    def built(self) -> forms.Built:
        """The profile as edited, or what is wrong."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def edited(self) -> bool:
        """Whether it differs from what is stored."""
        return self.base is not None and self.built().profile != self.base

    def stale(self) -> bool:
        """Whether the checks are of another profile than the form's."""
        return self.preflight is not None and self.built().profile != self.preflight_of

    def show_marks(self) -> None:
        """Puts marks and memory of the form's profile on the screen."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """`a` deploys only what a remedy made."""
        if action == "apply_deploy" and self.remedy is None:
            return False
        return super().check_action(action, parameters)

    # what is known

    def action_preflight(self) -> None:
        """Asks the host again."""
        built = self.built()
        if built.profile is None:
            self.console_app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
            return
        self.check_host(built.profile)

    def check_host(self, profile: Profile) -> None:
        """Runs the preflight beside the form."""
        self.checking = True
        self.run_worker(self._ask_preflight(profile), exit_on_error=False, exclusive=True, group="preflight")
        self.redraw()

    async def _ask_preflight(self, profile: Profile) -> None:
        try:
            # Under the name that it would be deployed with: a deployment of the very same profile asks nobody again.
            found = await self.console_app.need_services().preflight(self.key, self._named(profile))
        except (HostError, ValueError) as error:
            self.preflight_problem = str(error) or type(error).__name__
        else:
            self.preflight, self.preflight_of, self.preflight_problem = found, profile, ""
        self.checking = False
        self.forecast()
        self.redraw()

    def forecast(self) -> None:
        """Marks and memory of what is in the form now, from what the last preflight read."""
        profile = self.built().profile
        if profile is None:
            return
        try:
            marks, estimate = self.console_app.need_services().forecast(self.key, profile)
        except (HostError, ValueError):
            return  # the preflight says why nothing is known
        if not marks and self.preflight is not None and profile == self.preflight_of:
            marks, estimate = self.preflight.marks, estimate or self.preflight.memory
        if (marks, estimate) != (self.marks, self.estimate):
            self.marks, self.estimate = marks, estimate
            self.show_marks()

    def saw(self, preview: DeployPreview, profile: Profile) -> None:
        """A preview of that profile came; the first is when the remedy's difference is in sight."""
        self.seen, self.seen_of = preview, profile
        if self._shown_at is None:
            self._shown_at = self.console_app.ticks()

    # deploying

    def action_deploy_edited(self) -> None:
        """The preview of `d`, for what is edited."""
        built, app = self.built(), self.console_app
        if built.profile is None or self.base is None:
            app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
            return
        known = self.preflight if not self.stale() else None
        if not self.edited() and self.base.name in self.profiles:
            app.confirm_deploy(self.key, None, self.base.name, known)
        else:
            app.confirm_deploy(self.key, self._named(built.profile), preflight=known)

    def _named(self, profile: Profile) -> Profile:
        """Under a name that says that it was not saved, where it differs from what is."""
        return profile if self.base is None or profile == self.base else forms.renamed(profile, self.base.name)

    def action_apply_deploy(self) -> None:
        """The second `a`: deploys at once what is shown; where something stands against it, asks as `d` does."""
        app, built = self.console_app, self.built()
        if self._shown_at is None or app.ticks() - self._shown_at < HELD_KEY:
            return  # the same key still held down, or nothing to see yet
        if built.profile is None:
            app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
        elif self.checking or self.seen is None or self.seen_of != built.profile:
            app.tell("still asking the host", "warning")
        elif not self.edited():
            app.tell("nothing is changed: this is what failed", "warning")
        elif self._in_the_way():
            self.action_deploy_edited()
        elif not self._sending:
            self._sending = True
            self.run_worker(self._send(self._named(built.profile)), exit_on_error=False, group="send")

    def _in_the_way(self) -> bool:
        """Refusals, failed checks, edits that could not be made, and requests that would be lost."""
        failed = self.preflight is None or self.stale() or bool(self.preflight.failed)
        unmade = self.applied is not None and bool(self.applied.problems)
        seen = self.seen
        return failed or unmade or seen is None or bool(seen.refusals) or bool(seen.running_requests)

    async def _send(self, profile: Profile) -> None:
        app, text = self.console_app, self.remedy.text if self.remedy is not None else ""
        try:
            await app.need_services().deploy(self.key, profile, reason=f"remedy: {text}" if text else "")
        except HostError as error:
            app.problem(error)
            self._sending = False
            return
        app.pop_screen()
        app.open_deploy(self.key)

    # saving and leaving

    def action_save(self) -> None:
        """Asks for the new profile's name."""
        from ddtree_console.ui.screens.save import SaveScreen

        built, app = self.built(), self.console_app
        if built.profile is None or self.base is None:
            app.tell("; ".join(f"{k}: {v}" for k, v in built.errors.items()), "warning")
            return
        app.push_screen(SaveScreen(self.base.name, tuple(self.profiles)), self._save)

    def _save(self, name: str | None) -> None:
        if name:
            self.run_worker(self._write(name), exit_on_error=False)

    async def _write(self, name: str) -> None:
        app, built = self.console_app, self.built()
        if built.profile is None or self.base is None:
            return
        extends = self.base.name if self.base.name in self.profiles else self.base.extends or ""
        try:
            services = app.need_services()
            path = await services.save_profile(extends, name, built.profile)
            self.profiles = await services.profiles()
        except (HostError, OSError, ValueError) as error:
            app.problem(error)
            return
        app.tell(f"saved {path}, extends {extends}" if extends else f"saved {path}")
        saved = self.profiles.get(name)
        if saved is not None:
            await self.fill(saved)

    async def fill(self, base: Profile) -> None:
        """Puts a profile into the form."""
        raise NotImplementedError  # each screen brings its own; Textual's metaclass leaves no room for ABC

    def may_leave(self) -> bool:
        """False, once, while there are edits that are not saved; a remedy nobody touched can be had again by `a`."""
        if not self.edited() or self._leaving or (self.applied and self.built().profile == self.applied.profile):
            return True
        self._leaving = True
        self.console_app.tell("not saved: ctrl+s saves; once more drops the edits", "warning")
        return False

    def copy_text(self) -> str:
        """The exact command."""
        return self.seen.command if self.seen is not None else ""
