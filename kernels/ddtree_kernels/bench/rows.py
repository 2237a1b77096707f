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

    def cells(self, *, op: bool) -> str:
        """As a line of a Markdown table, with the operation's name or without."""
        shape = f"{self.op}, {self.shape}" if op else self.shape
        peers = ", ".join(f"{name} {time:.0f} ({time / self.ours:.1f}x)" for name, time in self.peers.items()) or "–"
        floor = f"{self.floor:.1f} ({self.ours / self.floor:.2f}x)" if self.floor else "–"
        goal = f"{self.goal:.0f} {'reached' if self.ours <= self.goal else '**not reached**'}" if self.goal else "–"
        return f"| {shape} | {self.ours:.1f} | {peers} | {floor} | {goal} |"

    def csv(self) -> list[str]:
        """As a line of the CSV file."""
        peers = ";".join(f"{name}={time:.2f}" for name, time in self.peers.items())
        return [self.op, self.shape, f"{self.ours:.2f}", peers, f"{self.floor:.2f}", f"{self.goal:.2f}"]


def of_csv(line: dict[str, str]) -> Row:
    """The row of a line of the CSV file."""
    pairs = (pair.rsplit("=", 1) for pair in line["peers_us"].split(";") if pair)
    peers = {name: float(time) for name, time in pairs}
    return Row(line["op"], line["shape"], float(line["us"]), peers, float(line["floor_us"]), float(line["goal_us"]))


COLUMNS = ("shape", "µs", "peers, µs (times ours)", "floor, µs", "goal, µs")
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"
CSV_HEAD = ["op", "shape", "us", "peers_us", "floor_us", "goal_us", "machine"]
