"""The commit: the unit file renamed in /etc, the trial taken away, and the proof that the service did not notice."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ddtree_console.hostside import durable, kept, releases, unitctl
from ddtree_console.hostside.tx_base import Served, Target, Tx
from ddtree_console.hostside.tx_steps import made
from ddtree_console.hostside.unitctl import Refused


def record_held(tx: Tx, release: str, secs: Mapping[str, float]) -> None:
    """The release that /etc holds already served again. A disk that refuses is noted, no more."""
    try:
        state = releases.load(tx.roots, tx.unit)
        releases.save(tx.roots, tx.unit, state.with_commit(release, secs, tx.clock.wall()))
    except OSError as error:
        tx.note(f"state.json was not written: {error.strerror}")


def commit(tx: Tx, target: Target, served: Served) -> str:
    """Commits what is on trial; the release that is committed now. Refused says why not (the trial stays then).

    Refused(process-changed) comes after the rename: the new unit is on disk and the service did not survive it.
    """
    with tx.step("commit") as end:
        candidate = target.candidate
        release = candidate.release
        secs, wall = dict(served.secs), tx.clock.wall()
        tx.remember(stage="commit", invocation=served.invocation, main_pid=served.main_pid, secs=secs)
        try:
            if not release:
                release = kept.keep(tx.roots, tx.unit, candidate, made(tx), reuse=True).release
                tx.remember(release=release)
            state = releases.load(tx.roots, tx.unit)
            # Between this line and the next but one a power cut leaves a rename that state.json does not know.
            releases.save(tx.roots, tx.unit, replace(state, committing=release), {"secs": secs, "wall": wall})
        except OSError as error:
            raise unitctl.disk_refused(error, str(tx.roots.kept(tx.unit))) from error
        try:
            unitctl.commit_file(tx.roots, tx.unit, candidate.unit_text)
        except Refused:
            with contextlib.suppress(OSError):
                releases.save(tx.roots, tx.unit, state)
            raise
        finish(tx, release, secs, served.invocation, served.main_pid)
        end["detail"] = release
    return release


def finish(tx: Tx, release: str, secs: Mapping[str, float], invocation: str, main_pid: int) -> None:
    """What follows the rename; recovery does it again. Refused(process-changed) when the service was disturbed."""
    try:
        state = releases.load(tx.roots, tx.unit)
        if tx.plan.force:
            state = replace(state, drop_ins=releases.drop_ins(tx.roots, tx.unit))
        releases.save(tx.roots, tx.unit, state.with_commit(release, secs, tx.clock.wall()))
    except OSError as error:
        tx.note(f"state.json was not written: {error.strerror}; the rename in /etc counts")
    durable.remove(tx.roots.trial(tx.unit))
    unitctl.reload_units()
    now = unitctl.show(tx.unit)
    if (now.invocation, now.main_pid) != (invocation, main_pid) or unitctl.down(now):
        cause = f"the service changed during the commit: pid {main_pid} -> {now.main_pid}, {now.active} {now.sub}"
        raise Refused("process-changed", cause)
    if Path(now.fragment) != tx.roots.committed(tx.unit):
        raise Refused("other", f"systemd reads {tx.unit} from {now.fragment} after the commit")
    if tx.plan.boot and now.enabled != "enabled":
        problem = unitctl.enable(tx.unit)
        if problem:
            tx.note(f"a reboot will not start it: {problem}")
