"""Panels of one host: GPUs, systemd, HTTP. Each degrades alone and says why."""

from __future__ import annotations

from collections.abc import Sequence

from ddtree_console.domain.engines import ddtree_info
from ddtree_console.domain.service_state import proved
from ddtree_console.domain.snapshot import Drift, Gpu, GpuReport, HostSnapshot, ServiceSnapshot, UnitState
from ddtree_console.domain.spec import Service
from ddtree_console.ui.paint import Piece, Row, ago, bar, columns, fit, gib, heading, host_text, row, whole_gib, wrap
from ddtree_console.ui.views.deploy import exit_words
from ddtree_console.ui.views.finding import finding_of, line, release_of

HOT = 85
"""degrees C from which a temperature is coloured; Ada and Blackwell boards throttle from about 90."""


def gpu_rows(report: GpuReport, age: float | None, wide: int) -> list[Row]:
    """Bars, readings and processes of every device."""
    source = host_text(report.source, 40) if report.source != "none" else "no readings"
    driver = f" · driver {host_text(report.driver, 40)}" if report.driver else ""
    out = [heading("GPU", f"{source}{driver} · {ago(age)}", wide)]
    if report.fault:
        out += wrap(host_text(report.fault), wide - 1, "  ", "warn")
    if not report.gpus and not report.fault:
        out.append(row(("  no GPU reported", "dim")))
    for gpu in report.gpus:
        out += _gpu(gpu, wide)
    return out + _missing(report, wide)


def _missing(report: GpuReport, wide: int) -> list[Row]:
    """Why single readings are not there: one row for all devices with the same reasons."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for gpu in report.gpus:
        if gpu.missing and not gpu.fault:
            groups.setdefault(tuple(sorted(gpu.missing.items())), []).append(str(gpu.index))
    rows = []
    for reasons, which in groups.items():
        by_why: dict[str, list[str]] = {}
        for name, why in reasons:
            by_why.setdefault(why, []).append(name.replace("_", " "))
        text = "; ".join(f"no {', '.join(names)}: {why}" for why, names in by_why.items())
        rows.append(row((fit(host_text(f"    GPU {','.join(which)}: {text}", 300), wide).rstrip(), "dim")))
    return rows


def _gpu(gpu: Gpu, wide: int) -> list[Row]:
    name = host_text(gpu.name, 80)
    if gpu.fault:
        return [row((f" {gpu.index:>2} ", "bold"), (fit(f"✖ {host_text(gpu.fault)}  {name}", wide - 5), "bad"))]
    used, total = gpu.used, gpu.total
    cells = 10 if wide < 90 else 20
    full, empty = bar(used / total if used is not None and total else 0.0, cells)
    memory = f" {gib(used)}/{whole_gib(total)}" + (" unified" if gpu.unified else "")
    hot = gpu.temp is not None and gpu.temp >= HOT
    pieces: list[Piece] = [
        (f" {gpu.index:>2} ", "bold"),
        (full, "work"),
        (empty, "dim"),
        (f"{memory:<11}", ""),
        (_reading(gpu, "util", gpu.util, "%", 5), "dim" if gpu.util is None else ""),
        (_reading(gpu, "temp", gpu.temp, "°C", 6), "warn" if hot else ("dim" if gpu.temp is None else "")),
        (_power(gpu), "dim" if gpu.power is None else ""),
    ]
    if wide >= 72:
        pieces.append(("  " + name, "dim"))
    out = [tuple(pieces)]
    for process in gpu.processes:
        size = f"{gib(process.used)}G" if process.used is not None else "–"
        who = host_text(f"{process.user or '?'}  {process.unit or 'no unit'}  {process.name}", 200)
        out.append(row(("    ", ""), (fit(f"pid {process.pid}  {size:>6}  {who}", wide - 5), "dim")))
    if gpu.throttle:
        out.append(row(("    ", ""), (fit("throttled: " + host_text(", ".join(gpu.throttle), 200), wide - 5), "warn")))
    if gpu.ecc_errors:
        out.append(row(("    ", ""), (fit(f"{gpu.ecc_errors} uncorrected memory errors", wide - 5), "bad")))
    return out


def _reading(gpu: Gpu, name: str, value: float | None, unit: str, cells: int) -> str:
    return fit("–" if value is None else f"{value:.0f}{unit}", cells, right=True)


def _power(gpu: Gpu) -> str:
    limit = "" if gpu.power_limit is None else f"/{gpu.power_limit:.0f}"
    return fit("–" if gpu.power is None else f"{gpu.power:.0f}{limit} W", 10, right=True)


def unit_rows(unit: UnitState | None, service: ServiceSnapshot, age: float | None, wide: int, wall: float) -> list[Row]:
    """systemd's view of the unit, and what the console keeps for it."""
    out = [heading("SYSTEMD", ago(age) or "no report yet", wide)]
    if unit is None:
        return [*out, row(("  no report of this unit yet", "dim"))]
    active = f"{unit.load} · {unit.active} ({unit.sub})"
    bad = unit.active == "failed" or unit.sub == "auto-restart"
    since = f" since {ago(wall - unit.since)}" if unit.since else ""
    fields: list[tuple[str, str, str]] = [
        ("unit", f"{unit.unit}  {unit.enabled}", ""),
        ("state", active + since, "bad" if bad else ""),
        ("result", exit_words(unit.result, unit.exit_code, unit.exit_status, 0), "bad" if bad else ""),
        ("restarts", str(unit.restarts), "warn" if unit.restarts else ""),
        ("start", f"{unit.invocation[:12] or '–'}  pid {unit.main_pid or '–'}", ""),
        ("memory", f"{gib(unit.memory)}G" if unit.memory is not None else "–", ""),
        ("file", unit.fragment or "–", ""),
    ]
    if unit.need_reload:
        fields.append(("reload", "unit file changed on disk; systemd has not reloaded it", "warn"))
    fields += [("drop-in", path, "warn") for path in unit.drop_ins]
    kept = service.release
    known = f"known good {kept.known_good or '–'}  way back {kept.way_back or '–'}"
    fields.append(("kept", f"committed {kept.committed or '–'}  {known}", ""))
    fields += [("edited", f"{path} differs from what was kept", "warn") for path in kept.edited]
    if service.lock:
        fields.append(("lock", service.lock, "warn"))
    return out + [_field(name, host_text(text), style, wide) for name, text, style in fields]


def http_rows(service: ServiceSnapshot, slot: Service | None, age: float | None, wide: int) -> list[Row]:
    """Listener, last answer and figures with their source."""
    http, listener = service.http, service.listener
    port = slot.port if slot is not None else "?"
    out = [heading("HTTP", f"port {port} · {ago(age)}" if age is not None else f"port {port}", wide)]
    words = {"ours": "good", "foreign": "bad", "nobody": "dim"}
    who = f"  {listener.address}  pid {listener.pid} {listener.command}" if listener.pid else ""
    why = f"  {listener.why}" if listener.why else ""
    out.append(_field("listener", host_text(listener.state + who + why, 300), words.get(listener.state, "dim"), wide))
    status = "–" if http.status is None else str(http.status)
    seconds = "" if http.seconds is None else f"  {http.seconds * 1000:.0f} ms"
    via = f"  via {http.via}" if http.via else ""
    text = http.error or f"{status} {http.path}{seconds}{via}"
    ok = http.status == 200 and not http.error
    out.append(_field("answer", host_text(text), "good" if ok else ("dim" if http.status is None else "warn"), wide))
    if http.served_model:
        out.append(_field("model", host_text(http.served_model, 300), "", wide))
    token = "seen from this start" if proved(service) else "none seen from this start"
    out.append(_field("token", token, "good" if proved(service) else "dim", wide))
    figures = [
        f"{http.tok_s:,.0f} tok/s" if http.tok_s is not None else "",
        f"accept {http.accept_len:.2f}" if http.accept_len is not None else "",
        f"{http.running} running" if http.running is not None else "",
        f"{http.waiting} waiting" if http.waiting is not None else "",
    ]
    known = "  ".join(f for f in figures if f)
    source = f"{host_text(http.source, 40)}: " if http.source else ""
    out.append(_field("figures", source + known if known else "–", "" if known else "dim", wide))
    return out + _tree(service, wide)


def _tree(service: ServiceSnapshot, wide: int) -> list[Row]:
    """What DDTree's plug-in counted, where the server says it, and what that means."""
    found = ddtree_info.read(service.http.info)
    if found is None:
        return []
    words, style = ddtree_info.verdict(found)
    head = _field("ddtree", ddtree_info.summary(found), "", wide)
    return [head, *wrap(words, wide - 1, " " * 11, style)]


def drift_rows(drift: Sequence[Drift], wide: int, read_only: bool, taken: bool = False) -> list[Row]:
    """What was asked and what the server has instead; nothing where both are the same. taken: accepted by someone."""
    if not drift:
        return []
    keys = (
        "accepted until they change" if taken else "as the server says" if read_only else "A accepts until they change"
    )
    out = [heading("≠ DRIFT", keys, wide, "dim" if taken else "warn")]
    name = min(34, max(4, *(len(d.flag) for d in drift)))
    size = max(8, min(16, (wide - name - 6) // 2))
    sizes = (name, size, size)
    out.append(((" " * 2, ""), *columns(sizes, [("FLAG", "dim"), ("ASKED", "dim"), ("EFFECTIVE", "dim")])))
    for d in drift:
        cells = [
            (host_text(d.flag, 80), "bad" if d.must else ""),
            (host_text(d.asked, 80), ""),
            (host_text(d.effective, 80), "" if taken else "warn"),
        ]
        out.append(((" " * 2, ""), *columns(sizes, cells)))
        why = host_text(d.why) + (" · the profile says must" if d.must else "")
        if why.strip(" ·"):
            out += wrap(why.strip(" ·"), wide - 1, "    ", "dim")
    return out


def finding_rows(service: ServiceSnapshot, wide: int) -> list[Row]:
    """The verdict in one sentence, and what its keys do; nothing where nothing was found."""
    found = finding_of(service)
    if found is None:
        return []
    text, style = line(found)
    if service.finding is None:
        text = f"{text[:2]}{host_text(release_of(service), 40)}: {text[2:]}"
    keys = ["x why"]
    if found.remedies:
        keys.append(
            f"{'a applies' if found.remedies[0].edits else 'on the host'}: {host_text(found.remedies[0].text, 300)}"
        )
    return [*wrap(text, wide - 1, " ", style), *wrap(" · ".join(keys), wide - 1, "   ", "dim")[:1]]


def _field(name: str, text: str, style: str, wide: int) -> Row:
    return row((f"  {name:<9}", "dim"), (fit(text, max(4, wide - 11)).rstrip(), style))


def link_row(host: HostSnapshot, now: float) -> Piece:
    """The connection in one line."""
    seen = ago(None if host.at is None else now - host.at)
    if host.link in ("up", "unprivileged"):
        latency = "" if host.latency is None else f" · {host.latency * 1000:.0f} ms"
        python = f" · python {host_text(host.python, 20)}" if host.python else ""
        systemd = f" · systemd {host_text(host.systemd, 20)}" if host.systemd else ""
        only = "" if host.privileged and host.link == "up" else f" · read-only: {host_text(host.error) or 'no sudo'}"
        return f"{host.name}: connected · heard {seen}{latency}{python}{systemd}{only}", "warn" if only else "dim"
    retry = "" if host.retry_at is None else f" · retry in {max(0, int(host.retry_at - now + 0.5))} s"
    heard = f" · last heard {seen}" if seen else ""
    return f"{host.name}: {host.link} · {host_text(host.error) or 'no answer yet'}{retry}{heard}", "warn"
