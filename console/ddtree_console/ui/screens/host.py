"""One host: its services, GPUs, systemd, HTTP and journal. Every panel ages and degrades alone."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widget import Widget

from ddtree_console.domain.drift import accepted
from ddtree_console.domain.snapshot import FleetSnapshot, HostSnapshot, ServiceSnapshot
from ddtree_console.services.errors import HostError
from ddtree_console.ui.paint import Piece, heading, row
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views import fleet as fleet_view
from ddtree_console.ui.views import host as view
from ddtree_console.ui.widgets.feed import JournalFeed
from ddtree_console.ui.widgets.pick import Pick
from ddtree_console.ui.widgets.rows import Rows

COPIED = ("link", "main", "finding", "gpus", "drift", "unit", "http")


class HostScreen(ConsoleScreen):
    """Panels of the host of `key`; the chosen service may change on it."""

    CSS_PATH = "host.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", id="follow", tooltip="follow the journal"),
        Binding("A", "accept_drift", "accept ≠", id="accept_drift", tooltip="take the drift as known until it changes"),
    ]

    _taken: tuple[str, bool] = ("", False)
    """of the chosen service: whether its drift is accepted"""

    def body(self) -> Iterable[Widget]:
        """Services, panels, journal."""
        yield Rows(id="link", focus=False)
        yield Pick(id="main")
        yield Rows(id="finding", classes="-auto", focus=False)
        with Horizontal(id="panels"):
            yield Rows(id="gpus")
            with Vertical(id="right"):
                yield Rows(id="drift")
                yield Rows(id="unit")
                yield Rows(id="http")
        yield Rows(id="journal-head", focus=False)
        yield JournalFeed(id="journal")

    def on_mount(self) -> None:
        """The journal of the service that was opened."""
        self.query_one(JournalFeed).watch_service(self.key)

    def target(self) -> str:
        """The chosen service of this host."""
        chosen = self.query_one("#main", Pick).key if self.is_mounted else ""
        return chosen or self.key

    def _host(self, snapshot: FleetSnapshot) -> HostSnapshot | None:
        name = self.key.partition("/")[0]
        return next((h for h in snapshot.hosts if h.name == name), None)

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """HOST and the chosen service."""
        host, _, name = self.target().partition("/")
        return [(" HOST  ", "title"), (f"{host} / {name}", "bold")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """All panels."""
        host, services = self._host(snapshot), self.console_app.services
        if host is None or services is None:
            return
        text, style = view.link_row(host, now)
        self.query_one("#link", Rows).show([row((" " + text, style))])
        items = fleet_view.items(FleetSnapshot(hosts=(host,)), services.fleet, now)
        table = self.query_one("#main", Pick)
        before = table.key
        tiny = table.size.width < 36
        sizes = fleet_view.sizes(items, max(40, table.size.width))
        table.fill(
            [
                (i.service.key, fleet_view.tiny_row(i, table.size.width) if tiny else fleet_view.item_row(i, sizes))
                for i in items
            ]
        )
        if not before:
            table.select(self.key)
        self._panels(host, now)

    def _panels(self, host: HostSnapshot, now: float) -> None:
        services = self.console_app.services
        key = self.target()
        service = next((s for s in host.services if s.key == key), None)
        if services is None:
            return
        host_age = None if host.at is None else now - host.at
        gpus, unit, http = (self.query_one(f"#{name}", Rows) for name in ("gpus", "unit", "http"))
        gpus.show(view.gpu_rows(host.gpus, host_age, max(30, gpus.size.width - 1)))
        if service is None:
            return
        self._about(service)
        age = None if service.at is None else now - service.at
        slot = next((s for h in services.fleet.hosts for s in h.services if s.key == key), None)
        unit.show(view.unit_rows(service.unit, service, age, max(30, unit.size.width - 1), self.console_app.wall()))
        http.show(view.http_rows(service, slot, age, max(30, http.size.width - 1)))
        self._journal_head()

    def _about(self, service: ServiceSnapshot) -> None:
        """What is wrong with it, in panes that are there only then."""
        found, drift = self.query_one("#finding", Rows), self.query_one("#drift", Rows)
        found.show(view.finding_rows(service, max(18, found.size.width - 1)))
        taken = accepted(service.drift, service.release.accepted_drift)
        drift.show(view.drift_rows(service.drift, max(30, drift.size.width - 1), self.console_app.read_only, taken))
        if (service.key, taken) != self._taken:
            self._taken = (service.key, taken)
            self.refresh_bindings()
        found.display, drift.display = bool(found.shown), bool(service.drift)

    def _chosen_service(self) -> ServiceSnapshot | None:
        return self.console_app.snapshot.service(self.target()) if self.is_mounted else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Drift can be accepted only where there is some."""
        if action == "accept_drift":
            service = self._chosen_service()
            if service is None or not service.drift or accepted(service.drift, service.release.accepted_drift):
                return False
        return super().check_action(action, parameters)

    def action_accept_drift(self) -> None:
        """Asks once more: the badge goes until the differences change."""
        from ddtree_console.ui.screens.ask import AskScreen

        key, service = self.target(), self._chosen_service()
        if service is None or not service.drift:
            return
        what = ", ".join(f"{d.flag} {d.effective} instead of {d.asked}" for d in service.drift)
        text = f"{key}: accept {what}? The ≠ badge goes until they change; the profile stays as it is."
        self.app.push_screen(AskScreen(text, "A", "accept"), partial(self._accept, key))

    def _accept(self, key: str, yes: bool | None) -> None:
        if yes:
            self.run_worker(self._accepted(key), exit_on_error=False, group="act")

    async def _accepted(self, key: str) -> None:
        app = self.console_app
        try:
            await app.need_services().accept_drift(key)
        except HostError as error:
            app.problem(error)
        else:
            app.tell(f"{key}: drift accepted until it changes")

    def _journal_head(self) -> None:
        feed = self.query_one(JournalFeed)
        head = self.query_one("#journal-head", Rows)
        head.show([heading("JOURNAL", feed.note(), max(20, head.size.width - 1))])

    @on(Pick.Moved)
    def _moved(self) -> None:
        self.query_one(JournalFeed).watch_service(self.target())
        self.redraw()

    @on(JournalFeed.Changed)
    def _journal(self) -> None:
        self._journal_head()

    @on(Pick.Chosen)
    def _chosen(self, event: Pick.Chosen) -> None:
        if self.console_app.in_flight(event.key):
            self.console_app.open_deploy(event.key)
        else:
            self.console_app.action_why()

    def action_follow(self) -> None:
        """Follow or stay."""
        feed = self.query_one(JournalFeed)
        feed.follow(not feed.following)

    def copy_text(self) -> str:
        """The focused pane, else the services and the panels."""
        focused = self.focused
        if isinstance(focused, Rows) and focused.id != "main":
            return focused.text
        return "\n".join(self.query_one(f"#{name}", Rows).text for name in COPIED)
