"""The GPU plan of the DDTREE plug-in, in one command, on a host with one free GPU and stock SGLang 0.5.12:

    PYTHONPATH=SITE python3 tests/gpu/plugin_plan.py OUT [--steps refusals,tokens,...] [--pair DIR] [--flags "..."]

SITE is SGLang's own environment (nothing for an installed one). The plug-in is unpacked to OUT/plugin and put first on
the servers' PYTHONPATH, as the console does. Recordings and result.json lie in OUT; exit 0 when every step passed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from tests.gpu import compare  # noqa: E402
from tests.gpu.servers import Ended, Server, ask  # noqa: E402

BUDGETS, BATCHES, REPEATS, TOKENS = (15, 31, 63), (1, 8), 3, 256
GOAL = 1.24
STARTS = 240.0
COMMON = "--attention-backend triton --sampling-backend pytorch --grammar-backend none --context-length 2048 " \
         "--max-running-requests 8 --enable-metrics --disable-overlap-schedule"  # fmt: skip


class Plan:
    """One run. steps: name -> what it found; a step that fails does not stop the others."""

    def __init__(self, out: Path, pair: Path, more: Sequence[str]) -> None:
        self.out, self.pair, self.more = out, pair, list(more)
        self.results: dict[str, dict[str, Any]] = {}
        self._port = 31000
        self.plugin = carry(out / "plugin")
        self.prompts = prompts(pair)
        self.plain: list[dict[str, Any]] = []

    def server(self, name: str, *flags: str, share: float = 0.3, env: Mapping[str, str] | None = None) -> Server:
        """A server of the pair: `ar`, `dflash`, `shadow-N` or `tree-N` by its name."""
        self._port += 1
        path = os.pathsep.join(p for p in (str(self.plugin), os.environ.get("PYTHONPATH", "")) if p)
        kind, _, rest = name.partition("-")
        spec: list[str] = []
        if kind != "ar":
            spec = ["--speculative-algorithm", "DFLASH" if kind == "dflash" else "DDTREE",
                    "--speculative-draft-model-path", str(self.pair / "draft")]  # fmt: skip
        given = {"PYTHONPATH": path, **(env or {})}
        if kind in ("tree", "shadow"):
            given = {"DDTREE_MODE": kind, "DDTREE_BUDGET": rest.partition("-")[0], **given}
        words = [*COMMON.split(), "--mem-fraction-static", str(share), *self.more, *spec, *flags]
        return Server(name, self.out, self._port, self.pair, words, given)

    def answers(self, name: str, env: Mapping[str, str] | None = None) -> tuple[list[list[int]], dict[str, Any]]:
        """(greedy tokens of every prompt, the `ddtree` section) of one server."""
        server = self.server(name, env=env)
        try:
            server.ready(STARTS)
            tokens = [list(server.generate(p, max_new_tokens=TOKENS)["output_ids"]) for p in self.prompts]
            return tokens, server.section()
        finally:
            server.stop()

    def baseline(self) -> None:
        """The plain target's answers with the margins of its choices; asked once."""
        if self.plain:
            return
        server = self.server("ar")
        try:
            server.ready(STARTS)
            for prompt in self.prompts:
                found = server.generate(prompt, max_new_tokens=TOKENS, _return_logprob=True, _top_logprobs_num=2)
                self.plain.append({"ids": found["output_ids"], "margins": compare.margins_of(found)})
        finally:
            server.stop()

    def against_plain(self, got: Sequence[Sequence[int]]) -> dict[str, Any]:
        """How they differ from the plain target's answers."""
        self.baseline()
        return compare.judged([p["ids"] for p in self.plain], got, [p["margins"] for p in self.plain])

    # --- steps ---

    def table(self) -> dict[str, Any]:
        """The whole table of names against the installed release, the late rows too."""
        from ddtree_kernels.sglang_plugin import plugin, signatures

        version = plugin.installed()
        release = signatures.release_of(version)
        found = signatures.problems([*release.calls, *release.late]) if release is not None else [f"SGLang {version}"]
        return {"ok": not found, "problems": found}

    def refusals(self) -> dict[str, Any]:
        """Each of these must end the start with one line that begins `DDTREE refuses: `."""
        wrong: dict[str, tuple[list[str], dict[str, str]]] = {
            "tree-31-fa3": (["--attention-backend", "fa3"], {}),
            "tree-31-page": (["--page-size", "16"], {}),
            "tree-3": ([], {}),
            "tree-31-topk": (["--speculative-eagle-topk", "4"], {}),
            "tree-31-control": ([], {"DDTREE_TEST_BREAK_MASK": "start"}),
        }
        said = {}
        for name, (flags, env) in wrong.items():
            server = self.server(name, *flags, env=env)
            try:
                server.ready(STARTS)
                said[name] = "it serves"
            except Ended:
                lines = [line for line in server.log.splitlines() if "DDTREE refuses: " in line]
                said[name] = (
                    "DDTREE refuses: " + lines[-1].partition("DDTREE refuses: ")[2] if lines else "no reason told"
                )
            finally:
                server.stop()
        return {"ok": all(text.startswith("DDTREE refuses: ") for text in said.values()), "said": said}

    def tokens(self) -> dict[str, Any]:
        """DFLASH, shadow and tree give the plain target's tokens up to near-ties; shadow gives DFLASH's own lengths."""
        found: dict[str, Any] = {}
        linear, _ = self.answers("dflash")
        found["dflash"] = self.against_plain(linear)
        for budget in BUDGETS:
            for mode in ("shadow", "tree"):
                got, section = self.answers(f"{mode}-{budget}")
                row = self.against_plain(got)
                zero = section.get("shorter_rounds") == 0 == section.get("astray_rounds")
                same = sum(a == b for a, b in zip(got, linear, strict=True))
                longer = (section.get("tree_length") or 0) >= (section.get("chain_length") or 1)
                row.update(section=section, as_dflash=same, ok=row["ok"] and zero and longer)
                found[f"{mode}-{budget}"] = row
        return {"ok": all(row["ok"] for row in found.values()), "of": len(self.prompts), **found}

    def control(self) -> dict[str, Any]:
        """With a chain's mask, which the self-test is told to pass over, tokens must differ beyond near-ties."""
        got, _ = self.answers("tree-31-control", {"DDTREE_TEST_BREAK_MASK": "serve"})
        row = self.against_plain(got)
        return {"ok": not row["ok"], **row}

    def leak(self) -> dict[str, Any]:
        """500 mixed requests in a tiny pool: batch 1 to 8, aborts, stops; no slot may stay, radix on or off."""
        found: dict[str, Any] = {}
        for name, flags in (("tree-31-leak", []), ("tree-31-leak-plain", ["--disable-radix-cache"])):
            checks = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
                      "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1"}  # fmt: skip
            server = self.server(name, "--max-total-tokens", "2600", *flags, env=checks)
            try:
                server.ready(STARTS)
                row = self._mixed(server)
                time.sleep(5)  # the scheduler checks its pools when it is idle
                ask(server.port, "/flush_cache", {})
                alive = bool(server.generate(self.prompts[0], max_new_tokens=8).get("output_ids"))
                leaks = [line[:200] for line in server.log.splitlines() if "leak" in line.lower()]
                retracted = server.log.count("Retract requests")
                row.update(alive=alive, leaks=leaks[:5], retractions=retracted, section=server.section())
                row["ok"] = alive and not leaks and server.ended() is None and retracted > 0
                found[name] = row
            finally:
                server.stop()
        return {"ok": all(row["ok"] for row in found.values()), **found}

    def _mixed(self, server: Server) -> dict[str, Any]:
        rng, lock = random.Random(7), threading.Lock()
        count = {"answered": 0, "stopped": 0, "aborted": 0, "failed": 0}

        def one(number: int) -> None:
            with lock:
                prompt, length = rng.choice(self.prompts), rng.choice((4, 40, 160, 400))
                stops, gone = rng.sample(range(4, 500), 6) if rng.random() < 0.4 else [], rng.random() < 0.15
            rid = f"leak-{number}"
            if gone:
                threading.Timer(0.15, lambda: ask(server.port, "/abort_request", {"rid": rid})).start()
            try:
                sampling = {"max_new_tokens": length, "stop_token_ids": stops, "ignore_eos": not stops}
                got = server.generate(prompt, **sampling, _rid=rid)
                kind = str((got["meta_info"].get("finish_reason") or {}).get("type"))
                key = {"stop": "stopped", "abort": "aborted"}.get(kind, "answered")
            except Ended:
                key = "failed"
            with lock:
                count[key] += 1

        for batch in (1, 2, 3, 5, 8):
            with ThreadPoolExecutor(batch) as pool:
                list(pool.map(one, range(100 * batch, 100 * batch + 100)))
        return dict(count)

    def samples(self) -> dict[str, Any]:
        """At temperature 0.7 the next tokens are distributed as the plain target's, as near as its own halves are."""
        drawn: dict[str, list[tuple[int, ...]]] = {}
        for name in ("ar", "tree-31"):
            server = self.server(f"{name}-samples")
            try:
                server.ready(STARTS)
                prompt = self.prompts[0]

                def draw(_: int, server: Server = server, prompt: Sequence[int] = prompt) -> tuple[int, ...]:
                    return tuple(server.generate(prompt, max_new_tokens=3, temperature=0.7)["output_ids"])

                with ThreadPoolExecutor(8) as pool:
                    drawn[name] = list(pool.map(draw, range(4000)))
            finally:
                server.stop()
        plain = drawn["ar"]
        own = compare.distance(plain[::2], plain[1::2])
        other = compare.distance(plain, drawn["tree-31"])
        return {"ok": other <= 1.2 * own + 0.01, "between_halves": round(own, 4), "between_servers": round(other, 4)}

    def speed(self) -> dict[str, Any]:
        """All servers at once, measured in turn: the same backend, overlap off, graphs on, interleaved repeats."""
        names = ["ar", "dflash", *(f"tree-{b}" for b in BUDGETS)]
        servers = {name: self.server(f"{name}-speed", share=0.12) for name in names}
        cells: dict[tuple[str, int], list[dict[str, float]]] = {}
        sections = {}
        try:
            for server in servers.values():
                server.ready(2 * STARTS)
            for repeat in range(REPEATS + 1):  # the first one warms up
                for batch in BATCHES:
                    for name, server in servers.items():
                        row = self._timed(server, batch)
                        if repeat:
                            cells.setdefault((name, batch), []).append(row)
            sections = {name: server.section() for name, server in servers.items() if name.startswith("tree")}
            graphs = {name: "cuda graph: True" in server.log for name, server in servers.items()}
        finally:
            for server in servers.values():
                server.stop()
        ratio = compare.best_ratio(cells, 1)
        linear = {b: compare.mean([r["accept"] for r in cells[("dflash", b)]]) for b in BATCHES}
        longer = all(
            compare.mean([r["accept"] for r in runs]) >= linear[b] - 1e-9
            for (name, b), runs in cells.items()
            if name.startswith("tree")
        )
        print("\n".join(compare.table(cells)))
        return {
            "ok": longer and ratio >= GOAL and all(graphs.values()),
            "ratio_at_batch_1": round(ratio, 3),
            "goal": GOAL,
            "tree_at_least_linear": longer,
            "graphs": graphs,
            "table": compare.table(cells),
            "phases": {name: s.get("ms") for name, s in sections.items()},
        }

    def _timed(self, server: Server, batch: int) -> dict[str, float]:
        chosen = [self.prompts[i % len(self.prompts)] for i in range(2 * batch)]
        began = time.monotonic()
        with ThreadPoolExecutor(batch) as pool:
            got = list(pool.map(lambda p: server.generate(p, max_new_tokens=TOKENS), chosen))
        took = time.monotonic() - began
        count = sum(len(g["output_ids"]) for g in got)
        steps = [int(g["meta_info"].get("spec_verify_ct") or len(g["output_ids"])) for g in got]
        return {"tok_s": count / took, "accept": count / sum(steps), "step_ms": 1e3 * took * batch / sum(steps)}


STEPS: Mapping[str, Callable[[Plan], dict[str, Any]]] = {
    "table": Plan.table,
    "tokens": Plan.tokens,
    "control": Plan.control,
    "refusals": Plan.refusals,
    "leak": Plan.leak,
    "samples": Plan.samples,
    "speed": Plan.speed,
}


def carry(where: Path) -> Path:
    """The plug-in with its dist-info, as the console puts it on a host."""
    sys.path.insert(0, str(ROOT / "console"))
    from ddtree_console.transport.carried import plugin

    for name, data in plugin().files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return where


def prompts(pair: Path) -> list[list[int]]:
    """Two prompts of each family of the tiny pair's text, as token ids."""
    from ddtree_kernels.models.tokenizer import load_tokenizer
    from ddtree_kernels.tiny.prompts import prompt_set

    tokenizer = load_tokenizer(pair / "target")
    return [tokenizer.encode(text) for texts in prompt_set(2).values() for text in texts]


def main(argv: Sequence[str]) -> int:
    """0 when all asked steps passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--pair", type=Path, default=ROOT / "kernels/ddtree_kernels/tiny/pair")
    parser.add_argument("--flags", default="", help="more flags of every server, as one text")
    args = parser.parse_args(argv)
    unknown = [name for name in args.steps.split(",") if name not in STEPS]
    if unknown:
        parser.error(f"no step {unknown[0]}; steps are {', '.join(STEPS)}")
    plan = Plan(args.out.resolve(), args.pair.resolve(), args.flags.split())
    for name in args.steps.split(","):
        began = time.monotonic()
        try:
            plan.results[name] = STEPS[name](plan)
        except Ended as error:
            plan.results[name] = {"ok": False, "error": str(error)}
        plan.results[name]["seconds"] = round(time.monotonic() - began, 1)
        print(f"{'ok  ' if plan.results[name]['ok'] else 'FAIL'} {name}  {plan.results[name]['seconds']} s", flush=True)
        (plan.out / "result.json").write_text(json.dumps(plan.results, indent=1))
    return 0 if all(row["ok"] for row in plan.results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
