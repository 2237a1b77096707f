"""What was last seen, immutable: services build it, widgets and the CLI render it. Bytes, watts, degrees C, seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddtree_console.domain.findings.types import Finding
    from ddtree_console.domain.txview import TxView


@dataclass(frozen=True)
class UnitState:
    """`systemctl show` of one unit. Times are wall-clock seconds, None when systemd has none."""

    unit: str
    load: str = ""
    active: str = ""
    sub: str = ""
    result: str = ""
    restarts: int = 0
    invocation: str = ""
    main_pid: int = 0
    exit_code: int = 0
    exit_status: int = 0
    since: float | None = None
    need_reload: bool = False
    drop_ins: tuple[str, ...] = ()
    fragment: str = ""
    enabled: str = ""
    memory: int | None = None
    cpu_ns: int | None = None
    control_group: str = ""


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU. used: bytes or None when NVML cannot say. unit: its systemd unit, from its cgroup."""

    pid: int
    used: int | None = None
    user: str = ""
    name: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Gpu:
    """One device. `fault` names why the whole device cannot be read; `missing` why single readings cannot."""

    index: int
    name: str = ""
    uuid: str = ""
    total: int | None = None
    used: int | None = None
    free: int | None = None
    util: int | None = None
    temp: int | None = None
    power: float | None = None
    power_limit: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    fault: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    unified: bool = False
    """its memory is the host's: total, used and free are those of the host."""
    throttle: tuple[str, ...] = ()
    """why its clocks are held down: thermal or power faults, not the normal power cap."""
    ecc_errors: int | None = None
    """uncorrected memory errors since the driver was loaded; None where the device has no ECC."""
    capability: str = ""
    """CUDA compute capability such as 9.0; '' where the driver does not tell."""
    pci: str = ""
    """PCI address, as the kernel's log names the device."""


@dataclass(frozen=True)
class GpuReport:
    """All devices of a host. source: nvml | nvidia-smi | none. cuda: newest CUDA that the driver runs, '' not told."""

    source: str = "none"
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    fault: str | None = None
    cuda: str = ""


@dataclass(frozen=True)
class Listener:
    """Who listens on a service's port: ours | foreign | nobody | unknown (`why`)."""

    state: str = "unknown"
    address: str = ""
    pid: int = 0
    command: str = ""
    why: str = ""


@dataclass(frozen=True)
class HttpState:
    """What the server answers. path and status of the last probe; figures name their source.

    source: metrics | server_info | log | ''. via: channel | host (asked by the watcher).
    """

    path: str = ""
    status: int | None = None
    error: str = ""
    seconds: float | None = None
    via: str = ""
    served_model: str = ""
    running: int | None = None
    waiting: int | None = None
    tok_s: float | None = None
    accept_len: float | None = None
    source: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    token: str = ""
    """the InvocationID in which this console saw a token generated; '' when it saw none."""


@dataclass(frozen=True)
class Drift:
    """A flag that the operator set and the server does not have so."""

    flag: str
    asked: str
    effective: str
    must: bool = False
    why: str = ""
    """ignored, capped, overridden or captured (a graph, though it was disabled), and `: reason` where log or release
    say one; '' from an older host."""


@dataclass(frozen=True)
class ReleaseState:
    """What the host keeps for a slot. committed: rN or ''. edited: paths on disk that differ from what was kept."""

    committed: str = ""
    profile: str = ""
    known_good: str = ""
    trial: str = ""
    way_back: str = ""
    edited: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    previous: str = ""
    """what `rollback --to known-good` goes to: the newest release that held before the one that is in place."""
    accepted_drift: str = ""
    """signature of the differences that an operator took as known (domain/drift.signature); '' for none."""


@dataclass(frozen=True)
class ServiceSnapshot:
    """One slot as last seen. `at` is the console's monotonic time of the last watcher report, None before any."""

    key: str
    unit: UnitState | None = None
    listener: Listener = field(default_factory=Listener)
    http: HttpState = field(default_factory=HttpState)
    release: ReleaseState = field(default_factory=ReleaseState)
    drift: tuple[Drift, ...] = ()
    tx: TxView | None = None
    lock: str = ""
    """who holds the slot's lock, from where and why, in one line; '' when free."""
    at: float | None = None
    finding: Finding | None = None
    """what is wrong with the running server, ready or not: a badge or an ailment; None for nothing known."""


@dataclass(frozen=True)
class HostSnapshot:
    """One host as last seen.

    link: connecting | up | down | refused (never retried by itself) | unprivileged (up, read-only).
    error: host, action, cause, next step in one line. retry_at: monotonic time of the next attempt.
    """

    name: str
    link: str = "connecting"
    error: str = ""
    attempt: int = 0
    retry_at: float | None = None
    privileged: bool = True
    python: str = ""
    systemd: str = ""
    boot: str = ""
    gpus: GpuReport = field(default_factory=GpuReport)
    services: tuple[ServiceSnapshot, ...] = ()
    at: float | None = None
    latency: float | None = None


@dataclass(frozen=True)
class FleetSnapshot:
    """Every host at one moment; `serial` rises with each change so that a view can skip an unchanged one."""

    serial: int = 0
    now: float = 0.0
    hosts: tuple[HostSnapshot, ...] = ()

    def service(self, key: str) -> ServiceSnapshot | None:
        """The slot HOST/NAME, or None."""
        for host in self.hosts:
            for service in host.services:
                if service.key == key:
                    return service
        return None
