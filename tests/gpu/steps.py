"""The correctness steps of the plan: each writes what it finds into its row as it goes, so that a cut leaves a part."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.gpu import compare
from tests.gpu.servers import Ended, Server, ask
from tests.gpu.waves import Fleet, Wanted, at_once

BUDGETS, TOKENS = (15, 31, 63), 128
SIZES = ("15", "31", "63")
PLAIN, CONTROL = "ar", "tree-31-control"
FIRST = ("dflash", "tree-31", "ar", "shadow-31", "tree-15", "tree-63", "shadow-15", "shadow-63")
LATER = (PLAIN, "tree-31", CONTROL)
"""those of the first wave that are asked once all are timed."""
MIXED = ("tree-31-leak", "tree-31-leak-plain")
REFUSED: Mapping[str, Wanted] = {
    w.name: w
    for w in (
        Wanted("tree-31-fa3", ("--attention-backend", "fa3")),
        Wanted("tree-31-page", ("--page-size", "16")),
        Wanted("tree-3"),
        Wanted("tree-31-topk", ("--speculative-eagle-topk", "4")),
        Wanted("tree-31-broken", env={"DDTREE_TEST_BREAK_MASK": "start"}),
    )
}
"""each must end its start with one line that begins `DDTREE refuses: `."""
STRICT = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1", "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}
REQUESTS, DRAWS, TOGETHER, PAUSE = 500, 4000, 8, 4.0
SPREAD = 0.95
"""share of the most frequent draw from which on draws say nothing of a distribution."""
SHARES = {1: 0.08, 2: 0.2, 3: 0.4, 5: 0.64, 8: 1.0}
"""requests at once -> the share of REQUESTS that has been asked when that many end; few of the slow ones alone."""


def first_wave() -> list[Wanted]:
    """The servers that answer and are timed."""
    return [*map(Wanted, FIRST), Wanted(CONTROL, env={"DDTREE_TEST_BREAK_MASK": "serve"})]


def second_wave() -> list[Wanted]:
    """Those that must refuse, and those with a tiny pool."""
    tiny = ("--max-total-tokens", "1200")
    often = {**STRICT, "SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "40"}
    leaks = [Wanted(MIXED[0], tiny, STRICT), Wanted(MIXED[1], (*tiny, "--disable-radix-cache"), often)]
    return [*leaks, *REFUSED.values()]


@dataclass
class Run:
    """What the steps share. prompts: to compare answers; answered: to be timed, of forms that the pair has learnt.
    plain: of each prompt the plain target's tokens and margins; linear: DFLASH's tokens."""

    fleet: Fleet
    prompts: Sequence[Sequence[int]]
    answered: Sequence[Sequence[int]]
    plain: list[dict[str, Any]] = field(default_factory=list)
    linear: list[list[int]] = field(default_factory=list)


Row = dict[str, Any]


def table(run: Run, found: Row) -> None:
    """The whole table of names against the installed release, the late rows too; in a process of its own."""
    path = str(run.fleet.plugin)
    code = (
        f"import sys; sys.path.insert(0, {path!r})\n"
        "from ddtree_kernels.sglang_plugin import plugin, signatures\n"
        "v = plugin.installed(); r = signatures.release_of(v)\n"
        "print('SGLang', v, 'in the table' if r else 'not in the table')\n"
        "print(*(signatures.problems([*r.calls, *r.late]) if r else ['not tested']), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=run.fleet.clock.left(120)
    )
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    at = next((i for i, line in enumerate(lines) if line.startswith("SGLang ")), None)
    found["problems"] = lines[at + 1 :] if at is not None else done.stderr.splitlines()[-8:]
    found["release"] = lines[at] if at is not None else ""
    found["ok"] = at is not None and not found["problems"]


def answers(run: Run, name: str, prompts: Sequence[Sequence[int]], count: int = TOKENS) -> list[dict[str, Any]]:
    """Greedy answers of one server, one after the other: at batch 1 every server runs its smallest kernels."""
    server = run.fleet.get(name)
    more = {"_return_logprob": True, "_top_logprobs_num": 2} if name == PLAIN else {}
    return [server.generate(p, max_new_tokens=count, **more) for p in prompts]


def ask_plain(run: Run, count: int = TOKENS) -> Row:
    """The plain target's answers with the margins of its choices."""
    got = answers(run, PLAIN, run.prompts, count)
    run.plain = [{"ids": list(a["output_ids"]), "margins": compare.margins_of(a)} for a in got]
    return {"ok": True, "smallest_margin": min((m for p in run.plain for m in p["margins"]), default=None)}


def against_plain(run: Run, got: Sequence[Sequence[int]]) -> Row:
    """How they differ from the plain target's answers. Ended where there are none."""
    if not run.plain:
        raise Ended("the plain target gave no answers to compare with")
    kept = run.plain[: len(got)]
    return compare.judged([p["ids"] for p in kept], got, [p["margins"] for p in kept])


def length_of(answers_: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean tokens a verify pass, the prefill's own token left out; None without verify passes."""
    passes = sum(int(a["meta_info"].get("spec_verify_ct") or 0) for a in answers_)
    return round(sum(len(a["output_ids"]) - 1 for a in answers_) / passes, 4) if passes else None


def tokens(run: Run, found: Row) -> None:
    """DFLASH, shadow and tree give the plain target's tokens up to near-ties; shadow gives DFLASH's own lengths."""

    def one(name: str) -> Row:
        if name == PLAIN:
            return ask_plain(run)
        got = answers(run, name, run.prompts)
        return {
            "ids": [list(a["output_ids"]) for a in got],
            "length": length_of(got),
            "section": run.fleet.get(name).section(),
        }

    rows = at_once([n for n in FIRST if n in run.fleet.servers], one)
    run.linear = rows.get("dflash", {}).get("ids") or []
    found["of"] = len(run.prompts)
    for name, row in rows.items():
        found[name] = row
        if "ids" not in row:
            continue
        got, section = row.pop("ids"), row["section"]
        row["as_dflash"] = sum(a == b for a, b in zip(got, run.linear, strict=False))
        try:
            row.update(against_plain(run, got))
        except Ended as error:
            row.update(ok=False, error=str(error))
        if name != "dflash":
            row["zero"] = section.get("shorter_rounds") == 0 == section.get("astray_rounds")
            row["longer"] = (section.get("tree_length") or 0) >= (section.get("chain_length") or 1)
            row["ok"] = row["ok"] and row["zero"] and row["longer"]
    found["ok"] = len(rows) > 2 and all(row.get("ok") for row in rows.values())


def control(run: Run, found: Row) -> None:
    """With a chain's mask, which the self-test is told to pass over, tokens must differ beyond near-ties."""
    row = against_plain(run, [a["output_ids"] for a in answers(run, CONTROL, run.prompts[:6])])
    found.update(row, ok=not row["ok"])


def unsure(run: Run) -> Row:
    """The prompt with the plain target's answer up to where its two best tokens were nearest, as ids to go on from."""
    margin, number, at = min((m, n, i) for n, p in enumerate(run.plain) for i, m in enumerate(p["margins"]))
    ids = [*run.prompts[number], *run.plain[number]["ids"][:at]]
    return {"prompt": number, "position": at, "margin": margin, "ids": ids}


def samples(run: Run, found: Row) -> None:
    """At temperature 0.7 the next tokens are distributed as the plain target's, as near as its own halves are.

    They are drawn where the plain target was least sure: where it is sure, all draws are one and nothing is compared.
    """
    if not run.plain:
        ask_plain(run)
    place = unsure(run)
    found.update({key: place[key] for key in ("prompt", "position", "margin")})
    until = time.monotonic() + run.fleet.clock.left(28)
    sampling = {"max_new_tokens": 3, "temperature": 0.7, "ignore_eos": True}

    def one(name: str) -> Row:
        server, lock = run.fleet.get(name), threading.Lock()
        drawn: list[tuple[int, ...]] = []

        def draw(_: int) -> None:
            if time.monotonic() > until:
                return
            got = server.post({"input_ids": [place["ids"]] * TOGETHER, "sampling_params": sampling})
            with lock:
                drawn.extend(tuple(a["output_ids"]) for a in got)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(draw, range(DRAWS // TOGETHER)))
        return {"drawn": drawn}

    rows = at_once(LATER[:2], one)
    found.update({name: row["error"] for name, row in rows.items() if "error" in row})
    plain, tree = (rows[name].get("drawn") or [] for name in LATER[:2])
    found["draws"] = {PLAIN: len(plain), "tree-31": len(tree)}
    if len(plain) < 400 or len(tree) < 400:
        found["ok"] = False
        return
    count = min(len(plain), len(tree))
    most = max(Counter(plain).values()) / len(plain)
    own, other = compare.distance(plain[::2], plain[1::2]), compare.distance(plain[:count], tree[:count])
    found.update(between_halves=round(own, 4), between_servers=round(other, 4), most_frequent=round(most, 4))
    found["ok"] = other <= 1.2 * own + 0.01 and most < SPREAD


def refusals(run: Run, found: Row) -> None:
    """What each of the configurations that must be refused said."""
    run.fleet.settle()
    said: dict[str, str] = {}
    for name in REFUSED:
        server = run.fleet.servers.get(name)
        lines = [line for line in server.log.splitlines() if "DDTREE refuses: " in line] if server else []
        if server is None:
            said[name] = "it was not started"
        elif server.is_ready:
            said[name] = "it serves"
        else:
            said[name] = "DDTREE refuses: " + lines[-1].partition("DDTREE refuses: ")[2] if lines else "no reason told"
        found["said"] = said
    run.fleet.stop(tuple(REFUSED))
    found["ok"] = all(text.startswith("DDTREE refuses: ") for text in said.values())


def leak(run: Run, found: Row) -> None:
    """Mixed requests in a tiny pool: batch 1 to 8, aborts, stops; no slot may stay, radix on or off."""
    run.fleet.settle(MIXED)
    until = time.monotonic() + run.fleet.clock.left(90)

    def one(name: str) -> Row:
        server = run.fleet.get(name)
        row: Row = {"requests": mixed(server, run.prompts, until)}
        time.sleep(run.fleet.clock.left(PAUSE))  # the scheduler checks its pools when it is idle
        ask(server.port, "/flush_cache", {}, 10)
        row["alive"] = bool(server.generate(run.prompts[0], max_new_tokens=8).get("output_ids"))
        row["leaks"] = [line[:200] for line in server.log.splitlines() if "leak" in line.lower()][:5]
        row["retractions"] = server.log.count("Retract requests") + server.log.count("Testing retraction")
        row["section"] = server.section()
        done = sum(row["requests"].values())
        row["ok"] = bool(
            row["alive"] and not row["leaks"] and server.ended() is None and row["retractions"]
            and done >= REQUESTS and not row["requests"]["failed"]
        )  # fmt: skip
        return row

    found.update(at_once(MIXED, one))
    found["ok"] = all(found[name].get("ok") for name in MIXED)


def mixed(server: Server, prompts: Sequence[Sequence[int]], until: float) -> dict[str, int]:
    """How the requests ended: answered, stopped, aborted, failed; none is begun after `until` (of time.monotonic())."""
    rng, lock = random.Random(7), threading.Lock()
    count = {"answered": 0, "stopped": 0, "aborted": 0, "failed": 0}

    def one(number: int) -> None:
        with lock:
            prompt, length = rng.choice(prompts), rng.choice((4, 40, 160, 400))
            stops, gone = rng.sample(range(4, 500), 6) if rng.random() < 0.4 else [], rng.random() < 0.15
        if time.monotonic() > until:
            return
        rid = f"leak-{number}"
        timer = threading.Timer(0.1, lambda: ask(server.port, "/abort_request", {"rid": rid}, 10))
        if gone:
            timer.start()
        try:
            sampling = {"max_new_tokens": length, "stop_token_ids": stops, "ignore_eos": not stops}
            got = server.generate(prompt, **sampling, _rid=rid)
            kind = str((got["meta_info"].get("finish_reason") or {}).get("type"))
            key = {"stop": "stopped", "abort": "aborted"}.get(kind, "answered")
        except Ended:
            key = "aborted" if gone and server.ended() is None else "failed"
        with lock:
            count[key] += 1

    begun = 0
    for batch, share in SHARES.items():
        end = round(REQUESTS * share)
        with ThreadPoolExecutor(batch) as pool:
            list(pool.map(one, range(begun, end)))
        begun = end
    return dict(count)


def smoke(run: Run, found: Row) -> None:
    """One DFLASH and one tree server on a few prompts: do they serve, agree, and count?"""
    rows = {}
    for name in ("dflash", "tree-31"):
        rows[name] = answers(run, name, run.prompts[:6], 64)
        found[name] = {"length": length_of(rows[name]), "graph": "cuda graph: True" in run.fleet.get(name).log}
    found["section"] = run.fleet.get("tree-31").section()
    pairs = zip(rows["dflash"], rows["tree-31"], strict=True)
    found["same_answers"] = sum(list(a["output_ids"]) == list(b["output_ids"]) for a, b in pairs)
    zero = found["section"].get("shorter_rounds") == 0 == found["section"].get("astray_rounds")
    found["ok"] = zero and found["same_answers"] >= 4 and found["tree-31"]["graph"]
