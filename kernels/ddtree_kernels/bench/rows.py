"""One measured line of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """op, shape in words, our microseconds, the peers' by name, the floor and the goal (0 = none), in microseconds."""

    op: str
    shape: str
    ours: float
    peers: dict[str, float] = field(default_factory=dict)
    floor: float = 0.0
    goal: float = 0.0

    def table(self) -> str:
        """As a line of a Markdown table."""
        peers = ", ".join(f"{name} {time:.1f} ({time / self.ours:.1f}x)" for name, time in self.peers.items()) or "–"
        floor = f"{self.floor:.1f} ({self.ours / self.floor:.2f}x)" if self.floor else "–"
        goal = f"{self.goal:.0f} {'reached' if self.ours <= self.goal else 'NOT reached'}" if self.goal else "–"
        return f"| {self.op} | {self.shape} | {self.ours:.1f} | {peers} | {floor} | {goal} |"

    def csv(self) -> list[str]:
        """As a line of the CSV file."""
        peers = ";".join(f"{name}={time:.2f}" for name, time in self.peers.items())
        return [self.op, self.shape, f"{self.ours:.2f}", peers, f"{self.floor:.2f}", f"{self.goal:.2f}"]


COLUMNS = ("op", "shape", "µs", "peers, µs (how many times ours)", "floor, µs (ours over it)", "goal, µs")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
CSV_HEAD = ["op", "shape", "us", "peers_us", "floor_us", "goal_us"]
