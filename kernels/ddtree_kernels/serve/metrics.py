"""/metrics under SGLang's names, read from the state when asked; latencies as they come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ddtree_kernels.decode.job import Job
from ddtree_kernels.decode.pool import GIB

if TYPE_CHECKING:
    from ddtree_kernels.serve.state import State

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
_BETWEEN = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)


class _Now:
    """A collector that reads the state at each request."""

    def __init__(self, state: State) -> None:
        self.state = state

    def collect(self) -> Iterator[Metric]:
        """Gauges and counters."""
        state, worker = self.state, self.state.worker
        counts, memory, loaded = worker.counts, state.loaded.memory, state.loaded
        running = worker.running
        gauges: dict[str, tuple[str, float]] = {
            "num_running_reqs": ("Requests being decoded.", running),
            "num_queue_reqs": ("Requests waiting.", worker.waiting),
            "gen_throughput": ("Tokens a second, of the newest rounds.", worker.meter.tok_s if running else 0.0),
            "max_total_num_tokens": ("Tokens that the pool holds.", loaded.size.tokens),
            "is_cuda_graph": ("Whether rounds run in CUDA graphs.", float(not loaded.graphs)),
            "weight_memory_usage_gb": (
                "Weights of target and draft.",
                (memory["weight"] + memory["draft_weight"]) / GIB,
            ),
            "kv_cache_memory_usage_gb": ("Both pools.", (memory["kvcache"] + memory["draft_kvcache"]) / GIB),
            "startup_time_seconds": ("Loading, pools and graphs.", sum(loaded.times.values())),
        }
        if loaded.settings.drafts:
            length = worker.meter.accept_length or 0.0
            gauges["spec_accept_length"] = ("Tokens a round, of the newest rounds.", length)
            rate = (length - 1) / state.drafted if length and state.drafted else 0.0
            gauges["spec_accept_rate"] = ("Accepted of the verified.", rate)
        counters: dict[str, tuple[str, float]] = {
            "num_requests": ("Requests ended.", state.totals["requests"]),
            "num_aborted_requests": ("Requests cut off.", state.totals["aborted"]),
            "prompt_tokens": ("Prompt tokens of ended requests.", state.totals["prompt"]),
            "generation_tokens": ("Tokens of ended requests.", state.totals["generated"]),
            "spec_verify_calls": ("Rounds.", counts.rounds),
        }
        if loaded.settings.mode == "shadow-linear":
            counters["shadow_linear_tokens"] = ("Tokens that linear verification committed.", counts.committed)
            counters["shadow_tree_tokens"] = ("Tokens that the tree would have committed.", counts.would)
            counters["shadow_disagreements"] = ("Rounds in which tree and chain contradict.", counts.contradictions)
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=["model_name"])
            gauge.add_metric([state.name], value)
            yield gauge
        for name, (text, value) in counters.items():
            counter = CounterMetricFamily(f"sglang:{name}", text, labels=["model_name"])
            counter.add_metric([state.name], value)
            yield counter


class Metrics:
    """The registry of one server."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._registry = CollectorRegistry()
        self._registry.register(_Now(state))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"sglang:{name}", text, ["model_name"], buckets=buckets, registry=self._registry)

        self._first = histogram("time_to_first_token_seconds", "Until the first token.", _SECONDS)
        self._between = histogram("inter_token_latency_seconds", "A token after the first, on average.", _BETWEEN)
        self._whole = histogram("e2e_request_latency_seconds", "Until the end.", _SECONDS)

    def ended(self, job: Job, aborted: bool) -> None:
        """A request has its end."""
        totals = self._state.totals
        totals["requests"] += 1
        totals["aborted"] += aborted
        totals["prompt"] += len(job.prompt)
        totals["generated"] += job.tokens
        if aborted or job.first is None or job.ended is None:
            return
        labels = [self._state.name]
        self._first.labels(*labels).observe(job.first - job.created)
        self._whole.labels(*labels).observe(job.ended - job.created)
        if job.tokens > 1:
            self._between.labels(*labels).observe((job.ended - job.first) / (job.tokens - 1))

    def text(self) -> bytes:
        """The exposition."""
        out: bytes = generate_latest(self._registry)
        return out
