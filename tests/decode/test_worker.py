"""The queue: in order, every request has exactly one end, whatever happens to it or beside it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from ddtree_kernels.decode.engine import PromptError
from ddtree_kernels.decode.job import Job, Part
from ddtree_kernels.decode.meter import Meter
from ddtree_kernels.decode.sampling import Sampling
from ddtree_kernels.decode.settings import Settings
from ddtree_kernels.decode.text import TextStream
from ddtree_kernels.decode.worker import Closed, QueueFull, Worker
from tests.decode.pairs import engine, pair


class Asked:
    """A request and what it was given."""

    def __init__(self, worker: Worker, tokens: int = 5, prompt: list[int] | None = None, **options: Any) -> None:
        self.parts: list[Part] = []
        self.ended, self.began = threading.Event(), threading.Event()
        sampling = Sampling(tokens, temperature=0, **options)
        text = TextStream(worker.engine.pair.tokenizer.decode, sampling.stop)
        self.job = Job([1, 2, 3] if prompt is None else prompt, sampling, text, self.give)
        worker.submit(self.job)

    def give(self, part: Part) -> None:
        self.parts.append(part)
        self.began.set()
        if part.end is not None:
            self.ended.set()

    def end(self) -> dict[str, Any]:
        """Its only end, which is the last thing it was given."""
        assert self.ended.wait(20)
        assert [part.end is not None for part in self.parts] == [False] * (len(self.parts) - 1) + [True]
        end = self.parts[-1].end
        assert end is not None
        return end

    @property
    def tokens(self) -> list[int]:
        return [token for part in self.parts for token in part.tokens]

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(engine(pair(), Settings("ddtree", 8), 512))
    yield made
    made.close(0)


def test_first_come_first_served(worker: Worker) -> None:
    asked = [Asked(worker, tokens=3 + i) for i in range(6)]
    assert worker.waiting == 6
    worker.start()
    assert [one.end() for one in asked] == [{"type": "length", "length": 3 + i} for i in range(6)]
    ended = [one.job.ended or 0.0 for one in asked]
    assert ended == sorted(ended)
    assert all((a.job.ended or 0.0) <= (b.job.started or 0.0) for a, b in pairwise(asked))
    assert all(asked[i].tokens == asked[5].tokens[: 3 + i] for i in range(6))


def test_a_cancelled_one_ends_at_once_and_the_rest_goes_on(worker: Worker) -> None:
    long, waits, after = Asked(worker, 400), Asked(worker, 400), Asked(worker, 4)
    worker.start()
    assert long.began.wait(10)
    worker.cancel(waits.job)
    assert waits.ended.is_set() and waits.end()["type"] == "abort" and waits.tokens == []
    worker.cancel(long.job)
    assert long.end()["type"] == "abort" and 0 < len(long.tokens) < 400
    assert after.end() == {"type": "length", "length": 4}
    worker.cancel(after.job)
    assert len([part for part in after.parts if part.end]) == 1


def test_none_is_lost_when_many_come_and_go(worker: Worker) -> None:
    worker.start()
    asked: list[Asked] = []
    lock = threading.Lock()

    def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(12):
            one = Asked(worker, chance.randint(1, 6))
            with lock:
                asked.append(one)
            if chance.random() < 0.4:
                worker.cancel(one.job)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = [one.end()["type"] for one in asked]
    assert len(ends) == 72 and set(ends) == {"length", "abort"}
    assert all(one.job.cancelled for one, end in zip(asked, ends, strict=True) if end == "abort")
    assert worker.waiting == 0


def test_a_request_that_breaks_is_told_and_the_next_one_served(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    good = engine(pair(), Settings("ddtree", 8)).generate
    breaks = {1}

    def generate(prompt: Any, sampling: Any, seed: int, counts: Any = None) -> Any:
        if prompt[0] in breaks:
            raise RuntimeError("a kernel\nfailed")
        return good(prompt, sampling, seed, counts)

    monkeypatch.setattr(worker.engine, "generate", generate)
    bad, fine = Asked(worker), Asked(worker, prompt=[2, 1])
    worker.start()
    assert bad.end() == {"type": "abort", "message": "decoding failed: RuntimeError: a kernel"}
    assert fine.end()["type"] == "length"


def test_one_whose_listener_breaks_does_not_stop_the_others(worker: Worker) -> None:
    broken, fine = Asked(worker, 50), Asked(worker)

    def give(part: Part) -> None:
        raise ValueError("cannot take it")

    broken.job.give = give
    worker.start()
    assert fine.end()["type"] == "length"
    assert broken.job.tokens < 50 and broken.job.ended is not None


def test_after_a_cuda_error_everything_waiting_is_told_and_nothing_taken(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(*_: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(worker.engine, "generate", generate)
    asked = [Asked(worker) for _ in range(3)]
    worker.start()
    assert {one.end()["type"] for one in asked} == {"abort"}
    with pytest.raises(Closed, match="illegal memory access"):
        Asked(worker)


def test_what_is_refused_was_never_taken() -> None:
    worker = Worker(engine(pair(), Settings("linear"), 64), most_waiting=1)
    with pytest.raises(PromptError):
        Asked(worker, prompt=[99])
    worker.start()
    long = Asked(worker, 60)
    assert long.began.wait(10)
    waits = Asked(worker, 1)
    with pytest.raises(QueueFull, match="1 wait"):
        Asked(worker)
    assert (long.end()["type"], waits.end()["type"]) == ("length", "length")
    worker.close(1)
    with pytest.raises(Closed, match="shutting down"):
        Asked(worker)


def test_closing_lets_finish_what_can_and_cuts_the_rest() -> None:
    worker = Worker(engine(pair(), Settings("linear"), 4096))
    worker.start()
    short = Asked(worker, 3)
    assert worker.close(10) == 0 and short.end()["type"] == "length"
    worker = Worker(engine(pair(), Settings("linear"), 4096))
    worker.start()
    running, waits = Asked(worker, 4000), Asked(worker, 4000)
    assert running.began.wait(10)
    assert worker.close(0.05) == 2
    assert {running.end()["type"], waits.end()["type"]} == {"abort"}


def test_stop_texts_end_it_and_say_which(worker: Worker) -> None:
    worker.start()
    plain = Asked(worker, 30)
    plain.end()
    stop = plain.text[7:9]
    stopped = Asked(worker, 30, stop=("zz", stop))
    assert stopped.end() == {"type": "stop", "matched": stop}
    at = plain.text.index(stop)
    assert stopped.text == plain.text[:at] and stopped.job.tokens == at + 2
    token = plain.tokens[4]
    ended = Asked(worker, 30, stop_token_ids=(token,))
    assert ended.end() == {"type": "stop", "matched": token}
    assert ended.tokens == plain.tokens[: plain.tokens.index(token) + 1]


def test_figures_and_the_log_line() -> None:
    lines: list[str] = []
    worker = Worker(engine(pair(), Settings("ddtree", 8), 512), meter=Meter(lines.append, interval=10, drafted=8))
    worker.start()
    one = Asked(worker, 60)
    one.end()
    worker.close(5)
    counts = worker.counts
    assert counts == one.job.counts and counts.committed >= 59
    assert worker.meter.generated == 60 and worker.meter.tok_s > 0
    assert len(lines) == counts.rounds // 10
    assert (
        lines[0].startswith("Decode batch, #running-req: 1, accept len: ") and "gen throughput (token/s): " in lines[0]
    )
