"""Why: the finding with its remedies, the attempts before, and the journal around the lines that decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.domain.findings.types import Finding, Remedy
from ddtree_console.domain.snapshot import FleetSnapshot
from ddtree_console.domain.spec import Profile
from ddtree_console.services.api import HistoryEntry, JournalLine
from ddtree_console.services.errors import HostError
from ddtree_console.ui.paint import Piece, heading, host_text, row
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views import finding as found_view
from ddtree_console.ui.views import fleet as fleet_view
from ddtree_console.ui.views.why import why_rows
from ddtree_console.ui.widgets.journal import JournalPane
from ddtree_console.ui.widgets.rows import Rows

LINES = 2000
"""journal lines of the start that are asked for; the decisive ones are near its end"""


class WhyScreen(ConsoleScreen):
    """`x`. 1 to 9 choose a remedy, `a` makes its edits in the launch editor, `y` copies its command."""

    not_here = frozenset({"why", "apply"})
    CSS_PATH = "why.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "apply_chosen", "apply", id="apply_chosen", tooltip="make the chosen remedy's edits"),
        Binding("n", "next_evidence", "next line", id="next_evidence", tooltip="the next decisive line of the journal"),
        Binding("r", "reload", "reload", id="reload", tooltip="ask the host again"),
        *(Binding(str(i), f"choose({i})", f"remedy {i}", show=False) for i in range(1, 10)),
    ]

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self._chosen = 0
        self._base: Profile | None = None
        self._entries: Sequence[HistoryEntry] = ()
        self._journal_note = "asking the host…"
        self._asked_for: tuple[str, ...] = ()

    def body(self) -> Iterable[Widget]:
        """What is known above, the journal below."""
        yield Rows(id="main")
        yield Rows(id="journal-head", focus=False)
        yield JournalPane(id="journal")

    def finding(self) -> Finding | None:
        """What this screen is about."""
        return self.console_app.finding(self.key)

    def _remedy(self) -> Remedy | None:
        found = self.finding()
        return found.remedies[self._chosen] if found is not None and self._chosen < len(found.remedies) else None

    def _decisive(self) -> tuple[str, ...]:
        """Texts of the lines that decided: the finding's, else the verdict's."""
        found = self.finding()
        if found is not None and found.evidence:
            return tuple(e.text for e in found.evidence)
        service = self.console_app.snapshot.service(self.key)
        attempt = found_view.failed_attempt(service.tx) if service is not None else None
        return attempt.verdict.evidence if attempt is not None and attempt.verdict is not None else ()

    def _invocation(self) -> str:
        """The start that it is about; '' for none."""
        service = self.console_app.snapshot.service(self.key)
        if service is None:
            return ""
        attempt = found_view.failed_attempt(service.tx)
        if service.finding is None and attempt is not None:
            return attempt.invocation
        return service.unit.invocation if service.finding is not None and service.unit is not None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of a finding only where there is one."""
        if action == "apply_chosen" and self.finding() is None:
            return False
        if action == "next_evidence" and not (self.is_mounted and self.query_one("#journal", JournalPane).marks):
            return False
        return super().check_action(action, parameters)

    def on_mount(self) -> None:
        """Asks the host for what the snapshot has not."""
        self.action_reload()

    def action_reload(self) -> None:
        """Journal, history and profile of the start, each by itself."""
        self._asked_for = self._about()
        self.run_worker(self._load_journal(), exit_on_error=False, exclusive=True, group="why-journal")
        self.run_worker(self._load_rest(), exit_on_error=False, exclusive=True, group="why-rest")

    def _about(self) -> tuple[str, ...]:
        """What was asked about: another start or finding makes it worth asking again."""
        found = self.finding()
        service = self.console_app.snapshot.service(self.key)
        return (self._invocation(), found.slug if found is not None else "", found_view.release_of(service))

    async def _load_journal(self) -> None:
        pane, invocation = self.query_one("#journal", JournalPane), self._invocation()
        lines: Sequence[JournalLine] = ()
        if invocation:
            self._journal_note = "asking the host…"
            try:
                lines = await self.console_app.need_services().logs(self.key, lines=LINES, invocation=invocation)
                self._journal_note = ""
            except HostError as error:
                self._journal_note = str(error)
        pane.reset()
        pane.feed(lines)
        pane.mark(self._decisive())
        pane.show_mark(first=True)
        self.refresh_bindings()
        self.redraw()

    async def _load_rest(self) -> None:
        services, service = self.console_app.need_services(), self.console_app.snapshot.service(self.key)
        try:
            self._entries = await services.history(self.key)
        except HostError as error:
            self.console_app.problem(error)
        release = found_view.release_of(service)
        try:
            self._base = await services.kept_profile(self.key, release) if release else None
        except HostError:
            self._base = None  # the edits are then shown without what they change
        self.redraw()

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """WHY and the service."""
        host, _, name = self.key.partition("/")
        return [(" WHY  ", "title"), (f"{host} / {name}", "bold")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Everything known about its state."""
        services, pane = self.console_app.services, self.query_one("#main", Rows)
        if services is None:
            return
        if self._asked_for != self._about():
            self.action_reload()
        items = fleet_view.items(snapshot, services.fleet, now)
        item = next((i for i in items if i.service.key == self.key), None)
        if item is None:
            pane.show([row(("  no longer in the fleet", "dim"))])
            return
        journal = self.query_one("#journal", JournalPane)
        self.set_class(not self._invocation(), "-calm")
        pane.show(
            why_rows(
                item,
                max(18, pane.size.width - 1),
                finding=self.finding(),
                chosen=self._chosen,
                base=self._base,
                entries=self._entries,
                evidence=not (journal.marks and journal.size.height > 2),
            )
        )
        self._head()

    @on(JournalPane.Changed)
    def _head(self) -> None:
        head, pane = self.query_one("#journal-head", Rows), self.query_one("#journal", JournalPane)
        many = len(pane.marks)
        note = f"{pane.count:,} lines · " + (
            f"{many} decisive, n goes on" if many else "the decisive lines are not in it"
        )
        note = host_text(self._journal_note) or note
        title = f"JOURNAL of invocation {host_text(self._invocation()[:8])}"
        head.show([heading(title, note, max(20, head.size.width - 1))])

    def action_choose(self, number: int) -> None:
        """Another remedy."""
        found = self.finding()
        if found is not None and 0 < number <= len(found.remedies):
            self._chosen = number - 1
            self.redraw()

    def action_apply_chosen(self) -> None:
        """Its edits in the launch editor."""
        app, remedy = self.console_app, self._remedy()
        if remedy is None:
            app.tell("no remedy is known for this")
        elif not remedy.edits:
            app.tell("this remedy is a command for the host: y copies it")
        else:
            app.open_remedy(self.key, remedy)

    def action_next_evidence(self) -> None:
        """Scrolls the journal to the next decisive line."""
        self.query_one("#journal", JournalPane).show_mark()

    def copy_text(self) -> str:
        """The chosen remedy's command, else the journal if it has the focus, else all of it."""
        focused, remedy = self.focused, self._remedy()
        if isinstance(focused, JournalPane):
            return focused.text
        if remedy is not None and remedy.command:
            return remedy.command
        return self.query_one("#main", Rows).text
