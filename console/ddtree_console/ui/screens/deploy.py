"""A transaction, live. It runs on the host: leaving this screen leaves it running, coming back shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddtree_console.domain.snapshot import FleetSnapshot, ReleaseState
from ddtree_console.domain.txview import TxView
from ddtree_console.ui.paint import Piece, Row, clock, heading, host_text, row, wrap
from ddtree_console.ui.screens.base import ConsoleScreen
from ddtree_console.ui.views import deploy as view
from ddtree_console.ui.widgets.feed import JournalFeed
from ddtree_console.ui.widgets.rows import Rows


class DeployScreen(ConsoleScreen):
    """The newest transaction of a service, running or ended."""

    CSS_PATH = "deploy.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", id="follow", tooltip="follow the journal")
    ]

    def body(self) -> Iterable[Widget]:
        """Ladder above, journal of this start below."""
        yield Rows(id="main")
        yield Rows(id="journal-head", focus=False)
        yield JournalFeed(id="journal")

    def on_mount(self) -> None:
        """Lines of this service."""
        self.query_one(JournalFeed).watch_service(self.key)

    def _tx(self, snapshot: FleetSnapshot) -> TxView | None:
        service = snapshot.service(self.key)
        return service.tx if service is not None else None

    def _on_failure(self, tx: TxView, snapshot: FleetSnapshot) -> str:
        service = snapshot.service(self.key)
        kept = service.release if service is not None else ReleaseState()
        return view.on_failure(tx, kept.known_good or tx.source, kept.way_back)

    def title_pieces(self, snapshot: FleetSnapshot, now: float) -> list[Piece]:
        """As drawn: from, to, time of deadline, on failure."""
        tx = self._tx(snapshot)
        if tx is None:
            host, _, name = self.key.partition("/")
            return [(" DEPLOY  ", "title"), (f"{host} / {name}", "bold")]
        words = view.title(tx, self.key, self.console_app.host_time(self.key))
        head, _, rest = words.partition("  ")
        if self.size.width < 110:
            return [(f" {head}  ", "title"), (host_text(rest, 200), "")]
        then = self._on_failure(tx, snapshot)
        failure = f"   on failure: {then}" if then else ""
        return [(f" {head}  ", "title"), (host_text(rest, 200), ""), (failure, "dim")]

    def draw(self, snapshot: FleetSnapshot, now: float) -> None:
        """Steps, ladder, verdict; the end stays in view while it runs."""
        pane, tx = self.query_one("#main", Rows), self._tx(snapshot)
        wide = max(18, pane.size.width - 1)
        if tx is None:
            pane.show([row(("  no deployment of this service is known yet; d deploys", "dim"))])
            return
        rows = self._lost(snapshot, now, wide)
        then = self._on_failure(tx, snapshot)
        if 38 <= self.size.width < 110 and then and tx.running:
            rows.append(row((f" on failure: {then}", "dim")))
        t = self.console_app.host_time(self.key)
        rows += self._short(tx, t, wide) if wide < 38 else view.body_rows(tx, t, wide)
        pane.show(rows)
        if not pane.has_focus or tx.running:
            self.call_after_refresh(pane.scroll_end, animate=False)
        attempt = tx.attempt
        if attempt is not None:
            self.query_one(JournalFeed).only(invocation=attempt.invocation)
        self._head()

    def _lost(self, snapshot: FleetSnapshot, now: float, wide: int) -> list[Row]:
        host = next((h for h in snapshot.hosts if h.name == self.key.partition("/")[0]), None)
        if host is None or host.link in ("up", "unprivileged"):
            return []
        text = f"{host_text(host.error) or host.link}; the deployment goes on on its host, this is as last heard"
        return wrap("? " + text, wide - 2, " ", "warn")

    def _short(self, tx: TxView, t: float, wide: int) -> list[Row]:
        attempt = tx.attempt
        if attempt is None or not tx.running:
            return view.outcome_rows(tx, wide)
        lines = [x for x in (*attempt.steps, *attempt.phases, *attempt.rungs) if x.state == "run"]
        head = row((f"{'↻' if len(tx.attempts) > 1 else '◐'} {host_text(attempt.target, 12)}", "work bold"))
        return [head, *(row(f"◐ {host_text(x.name, 12)} {clock(view.spent(x, t))}") for x in lines[-2:])]

    @on(JournalFeed.Changed)
    def _head(self) -> None:
        head, tx = self.query_one("#journal-head", Rows), self._tx(self.console_app.snapshot)
        attempt = tx.attempt if tx is not None else None
        which = (
            f"JOURNAL of invocation {host_text(attempt.invocation[:8])}"
            if attempt is not None and attempt.invocation
            else "JOURNAL"
        )
        head.show([heading(which, self.query_one(JournalFeed).note(), max(20, head.size.width - 1))])

    def action_follow(self) -> None:
        """Follow or stay."""
        feed = self.query_one(JournalFeed)
        feed.follow(not feed.following)

    def copy_text(self) -> str:
        """Ladder, verdict and evidence as shown."""
        return self.query_one("#main", Rows).text
