"""A service as a line and as JSON: the keys that `--json` documents."""

from __future__ import annotations

from typing import Any

from ddtree_console.cli.output import safe
from ddtree_console.domain.service_state import DRIFTED, READY, State, service_state
from ddtree_console.domain.snapshot import FleetSnapshot, HostSnapshot, ServiceSnapshot
from ddtree_console.domain.spec import Service


def find(snapshot: FleetSnapshot, key: str) -> tuple[HostSnapshot, ServiceSnapshot]:
    """Host and service of a key that the fleet has."""
    for host in snapshot.hosts:
        for service in host.services:
            if service.key == key:
                return host, service
    raise KeyError(key)


def state_of(snapshot: FleetSnapshot, service: Service) -> State:
    """Its state, as on the screen."""
    host, seen = find(snapshot, service.key)
    return service_state(host, seen, snapshot.now, service.gpus)


def ready(state: State) -> bool:
    """Whether it serves, proved."""
    return state.rank in (READY, DRIFTED)


def release(seen: ServiceSnapshot, service: Service) -> str:
    """r12 shadow-small."""
    name = f"{seen.release.trial} on trial" if seen.release.trial else seen.release.committed or "unmanaged"
    return f"{name} {seen.release.profile or service.profile}".strip()


def row(snapshot: FleetSnapshot, service: Service) -> list[str]:
    """Key, state, release, rate, acceptance, detail: safe text."""
    host, seen = find(snapshot, service.key)
    state = state_of(snapshot, service)
    rate = f"{seen.http.tok_s:.0f} tok/s" if seen.http.tok_s is not None else "–"
    accepted = f"accept {seen.http.accept_len:.2f}" if seen.http.accept_len is not None else "–"
    detail = state.detail or host.error
    return [safe(x) for x in (service.key, state.text, release(seen, service), rate, accepted, detail)]


def as_json(snapshot: FleetSnapshot, service: Service) -> dict[str, Any]:
    """key, host, service, unit, state, glyph, detail, ready, link, error, release{committed, trial, known_good,
    way_back, profile, edited}, http{status, path, error, model, running, waiting, tok_s, accept_len, source},
    systemd{active, sub, result, restarts, invocation, main_pid}, listener, drift[{flag, asked, effective, must}],
    lock, tx{id, what, target, outcome, running}, age_s."""
    host, seen = find(snapshot, service.key)
    state = state_of(snapshot, service)
    unit, http, kept, tx = seen.unit, seen.http, seen.release, seen.tx
    return {
        "key": service.key,
        "host": service.host,
        "service": service.name,
        "unit": service.unit,
        "state": state.word,
        "glyph": state.glyph,
        "detail": state.detail,
        "ready": ready(state),
        "link": host.link,
        "error": host.error,
        "release": {
            "committed": kept.committed,
            "trial": kept.trial,
            "known_good": kept.known_good,
            "way_back": kept.way_back,
            "profile": kept.profile,
            "edited": list(kept.edited),
        },
        "http": {
            "status": http.status,
            "path": http.path,
            "error": http.error,
            "model": http.served_model,
            "running": http.running,
            "waiting": http.waiting,
            "tok_s": http.tok_s,
            "accept_len": http.accept_len,
            "source": http.source,
        },
        "systemd": None
        if unit is None
        else {
            "active": unit.active,
            "sub": unit.sub,
            "result": unit.result,
            "restarts": unit.restarts,
            "invocation": unit.invocation,
            "main_pid": unit.main_pid,
        },
        "listener": seen.listener.state,
        "drift": [{"flag": d.flag, "asked": d.asked, "effective": d.effective, "must": d.must} for d in seen.drift],
        "lock": seen.lock,
        "tx": None
        if tx is None
        else {"id": tx.tx, "what": tx.what, "target": tx.target, "outcome": tx.outcome, "running": tx.running},
        "age_s": None if seen.at is None else round(max(0.0, snapshot.now - seen.at), 1),
    }
