"""SGLang's log, from 0.4 to 0.5.23: phases, real bars, figures, and the line that means it will not serve.

A line costs a few microseconds: the five first letters of its text choose a handler, all else is a substring test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ddtree_console.domain.engines import sglang_arguments
from ddtree_console.domain.engines.base import Figures, LogFact
from ddtree_console.domain.engines.log_common import EXCEPTION, LINE_LIMIT, TRACEBACK, Reader

_PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([^\]]{0,40})\] ?")
_RANK = re.compile(r"^\[rank\d+\]: ?")
_GLUED = re.compile(r"[\r\n]+|(?<=.)(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OTHER_RANK = re.compile(r"\b(?:TP|DP|PP)[1-9]")
_CAPTURE = re.compile(r"Capture (.*?)(?:CUDA|cuda|NPU|npu) graph (begin|end)\b")
_SIZES = re.compile(r"Capture cuda graph (?:bs|num tokens) \[([\d, ]*)\]")
_BAR = re.compile(
    r"(Capturing|Compiling|Loading|Multi-thread)\b[^%]*?(?:\((bs|num_tokens)=(\d{1,12})[^)]*\))?[^%()]*?"
    r"\d+%(?:\|[^|]*\||[^|\d]*\|?)\s*(\d{1,12})/(\d{1,12})"
)
_KV = re.compile(r"#tokens: (\d{1,15}), K size: ([\d.]+) GB, V size: ([\d.]+) GB")
_AVAILABLE = re.compile(r"avail mem=([\d.]+) GB")
_STATE = re.compile(r"size: ?([\d.]+) ?GB")
_USED = re.compile(r"mem usage=([\d.]+) GB")
_WEIGHT_END = re.compile(r"type=(\w+)|mem usage=([\d.]+) GB")
_TOTALS = re.compile(r"(max_total_num_tokens|max_running_requests|context_len|chunked_prefill_size)=(\d{1,15})")
_ACCESS = re.compile(r'"(GET|POST) (/[^ ?"]*)[^"]*" (\d{3})')
_DECODE = {
    "running": re.compile(r"#running-req: (\d{1,12})"),
    "waiting": re.compile(r"#queue-req: (\d{1,12})"),
    "tok_s": re.compile(r"gen throughput \(token/s\): ([\d.]+)"),
    "accept_len": re.compile(r"accept len: ([\d.]+)"),
}
_EXIT_CODE = re.compile(r"exit code:? (-?\d+)")
BAR_WIDTH = 400
# endpoints that only monitoring asks for: their access lines are folded in the view
PROBES = frozenset(
    (
        *("/health", "/health_generate", "/ready", "/model_info", "/get_model_info", "/server_info"),
        *("/get_server_info", "/v1/models", "/v1/loads", "/get_load", "/metrics"),
    )
)
_WARNINGS = (
    ("is capped to", "capped"),
    ("Max running requests is reset to", "capped"),
    ("ignored for piecewise", "flag-ignored"),
    ("block size mismatch", "draft-mismatch"),
    ("Health check failed", "hang"),
    ("KV cache pool is full", "pool-full"),
    ("Retract requests", "pool-full"),
)


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class SglangReader(Reader):
    """Reads one invocation. Phase ids are those of docs/PROTOCOL.md; lines of other ranks than 0 move no phase."""

    def __init__(self) -> None:
        super().__init__()
        self._weights = 0
        self._pools = 0
        self._started = False
        """SGLang's own code has spoken: the imports of the main process are over."""
        self._sizes: Sequence[int] = ()
        self._asgi = False
        self._ranks: dict[str, bool] = {"": True}
        self._handlers: dict[str, Callable[[str, str], list[LogFact]]] = {
            "serve": self._arguments,
            "Init ": self._distributed,
            "Load ": self._weight,
            "Using": self._pool,
            "Mamba": self._pool,
            "KV Ca": self._pool,
            "Memor": self._pool,
            "Captu": self._graphs,
            "Compi": self._graphs,
            "Loadi": self._loading,
            "Multi": self._loading,
            "max_t": self._totals,
            "Uvico": self._http,
            "INFO:": self._http,
            "ERROR": self._http,
            "The s": self._ready,
            "Decod": self._decode,
            "Sched": self._scheduler,
            "Recei": self._sigquit,
            "SIGQU": self._sigquit,
            "SIGTE": self._sigterm,
            "Subpr": self._child,
            "Rank ": self._child,
            "Initi": self._initialization,
        }

    # ---- phases

    def _run(self, name: str, text: str = "", line: str = "") -> list[LogFact]:
        """Opens a phase, unless it is open; `line` is kept as evidence of what was under way."""
        if self.phase == name:
            return []
        out = self._end()
        self.phase, self.context = name, line
        return [*out, LogFact("phase", name, "run", text=text)]

    def _end(self, name: str = "", text: str = "") -> list[LogFact]:
        """The open phase is over; another name than the open one changes nothing."""
        if not self.phase or (name and name != self.phase):
            return []
        ended, self.phase, self.context = self.phase, "", ""
        return [LogFact("phase", ended, "ok", text=text)]

    def _arguments(self, msg: str, line: str) -> list[LogFact]:
        if not msg.startswith("server_args=") or self._weights:
            return []
        # the scheduler and detokenizer processes import everything once more
        told = LogFact("arguments", value=sglang_arguments.read(msg))
        return [*self._end("arguments"), *self._run("imports", "of the child processes"), told]

    def _distributed(self, msg: str, line: str) -> list[LogFact]:
        if "distributed begin" in msg or "parallel begin" in msg:
            return self._run("distributed", line=line)
        if "distributed ends" in msg or "parallel ends" in msg:
            return self._end("distributed")
        return []

    def _initialization(self, msg: str, line: str) -> list[LogFact]:
        if not msg.startswith("Initialization failed"):
            return []
        self.consequence(line)
        return [LogFact("wrapper", text=line), *self.fatal("fatal-log", line)]

    def _weight(self, msg: str, line: str) -> list[LogFact]:
        if msg.startswith("Load weight begin"):
            self._weights += 1
            out = self._run("weights" if self._weights == 1 else "draft weights", line=line)
            free = _AVAILABLE.search(msg) if self._weights == 1 else None
            return out if free is None else [*out, LogFact("value", "available GB", value=_float(free.group(1)))]
        if not msg.startswith("Load weight end"):
            return []
        name = "weights" if self._weights <= 1 else "draft weights"
        kind, size = "", None
        for match in _WEIGHT_END.finditer(msg):
            kind, size = match.group(1) or kind, _float(match.group(2)) if match.group(2) else size
        out = self._end(name, kind)
        if size is not None:
            out.append(LogFact("value", f"{name} GB", text=kind, value=size))
        return out

    def _pool(self, msg: str, line: str) -> list[LogFact]:
        name = "kv cache" if self._pools == 0 else "draft kv cache"
        if msg.startswith("Memory pool end"):
            self._pools += 1
            return self._end(name)
        if not msg.startswith(("Using KV cache dtype", "Mamba Cache is allocated", "KV Cache is allocated")):
            return []
        out = self._run(name, line=line)
        if msg.startswith("Mamba"):
            parts = [_float(size) or 0.0 for size in _STATE.findall(msg)]
            return [*out, LogFact("value", "hybrid state GB", value=round(sum(parts), 2))] if parts else out
        sizes = _KV.search(msg)
        if sizes is not None:
            out.append(LogFact("value", f"{name} tokens", value=int(sizes.group(1))))
            size = (_float(sizes.group(2)) or 0.0) + (_float(sizes.group(3)) or 0.0)
            out.append(LogFact("value", f"{name} GB", value=round(size, 2)))
        return out

    def _graphs(self, msg: str, line: str) -> list[LogFact]:
        sizes = _SIZES.match(msg)
        if sizes is not None:
            self._sizes = sorted((int(n) for n in sizes.group(1).split(",") if 0 < len(n.strip()) < 12), reverse=True)
            total = len(self._sizes)
            return [LogFact("bar", self.phase, done=0, total=total)] if self.phase and total else []
        capture = _CAPTURE.match(msg)
        if capture is None:
            return self._bar(msg) if "%" in msg else []
        what = capture.group(1)
        name = "piecewise graphs" if "piecewise" in what or "prefill" in what else "graphs"
        # up to 0.5.13 the draft's capture has the target's wording but comes after its weights
        if "draft" in what or ("target" not in what and self._weights >= 2):
            name = f"draft {name}"
        if capture.group(2) == "end":
            used = _USED.search(msg)
            out = self._end(name)
            return out if used is None else [*out, LogFact("value", f"{name} GB", value=_float(used.group(1)))]
        self._sizes = ()
        return self._run(name, line=line)

    def _bar(self, msg: str) -> list[LogFact]:
        """Progress is the place of bs= or num_tokens= in the list printed before: the bar's own count lags."""
        bar = _BAR.match(msg[:BAR_WIDTH])
        if bar is None or not self.phase:
            return []
        verb, unit, value, n, total = bar.group(1), bar.group(2), bar.group(3), int(bar.group(4)), int(bar.group(5))
        if total <= 0 or n > total:
            return []
        done = n
        if value is not None and n < total and len(self._sizes) == total and int(value) in self._sizes:
            done = max(n, self._sizes.index(int(value)))
        text = f"{verb.lower()} {'bs' if unit == 'bs' else 'tokens'} {value}" if value else ""
        return [LogFact("bar", self.phase, done=done, total=total, text=text)]

    def _loading(self, msg: str, line: str) -> list[LogFact]:
        return self._bar(msg) if "%" in msg and "weights" in self.phase else []

    def _totals(self, msg: str, line: str) -> list[LogFact]:
        return [*self._end(), *(LogFact("value", m.group(1), value=int(m.group(2))) for m in _TOTALS.finditer(msg))]

    # ---- serving

    def _http(self, msg: str, line: str) -> list[LogFact]:
        access = _ACCESS.search(msg) if "HTTP/" in msg else None
        if access is not None:
            path = access.group(2)
            if access.group(1) == "GET" and path in PROBES:
                return [LogFact("access", path, text=msg, value=int(access.group(3)))]
            return []
        if "Uvicorn running on" in msg:
            return [] if self.served else self._run("warm-up", line=line)
        if "Exception in ASGI application" in msg:
            self._asgi = True
            return []
        return self.plain(line) if msg.startswith("ERROR") else []

    def _ready(self, msg: str, line: str) -> list[LogFact]:
        if "fired up and ready to roll" not in msg:
            return self._text(msg, line)
        self.served = True
        return [*self._end(), LogFact("ready", text=msg)]

    def _decode(self, msg: str, line: str) -> list[LogFact]:
        if not msg.startswith("Decode batch"):
            return []
        found: dict[str, Any] = {name: pattern.search(msg) for name, pattern in _DECODE.items()}
        return [
            LogFact(
                "decode",
                value=Figures(
                    running=int(found["running"].group(1)) if found["running"] else None,
                    waiting=int(found["waiting"].group(1)) if found["waiting"] else None,
                    tok_s=_float(found["tok_s"].group(1)) if found["tok_s"] else None,
                    accept_len=_float(found["accept_len"].group(1)) if found["accept_len"] else None,
                ),
            )
        ]

    # ---- failures

    def _scheduler(self, msg: str, line: str) -> list[LogFact]:
        if msg.startswith("Scheduler hit an exception"):
            self.context = self.context or line
            return []
        return self._text(msg, line)

    def _sigquit(self, msg: str, line: str) -> list[LogFact]:
        if "sigquit" not in msg[:40].lower():
            return self._text(msg, line)
        self.consequence(line)
        return [LogFact("wrapper", text=line), *self.fatal("fatal-log", self.cause()[1] or line)]

    def _sigterm(self, msg: str, line: str) -> list[LogFact]:
        if msg.startswith("SIGTERM received"):
            self.stopping = True
        return []

    def _child(self, msg: str, line: str) -> list[LogFact]:
        code = _EXIT_CODE.search(msg)
        if code is None:
            return self._text(msg, line)
        if code.group(1) == "-15":  # somebody's SIGTERM, not a failure of its own
            self.stopping = True
        self.consequence(line)
        return [LogFact("wrapper", text=line), *self.fatal("fatal-log", self.cause()[1] or line)]

    def _text(self, msg: str, line: str) -> list[LogFact]:
        """A line that begins like none of the known ones."""
        for words, name in _WARNINGS:
            if words in msg:
                return [LogFact("warning", name, text=msg)]
        if "watchdog timeout (" in msg:
            self.direct.append(("line", line))
            return self.fatal("fatal-log", line)
        return self.plain(line, msg)

    # ---- lines

    def feed(self, line: str) -> list[LogFact]:
        """Facts of one journal entry: a line, a bar with its carriage returns, or several lines."""
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if "\r" not in line and "\n" not in line and "it/s]" not in line:
            return self._line(line)
        out: list[LogFact] = []
        for part in _GLUED.split(line):
            if part:
                out.extend(self._line(part))
        # an entry that holds a whole bar tells only where the bar stands now
        last = {fact.name: i for i, fact in enumerate(out) if fact.kind == "bar"}
        return [fact for i, fact in enumerate(out) if fact.kind != "bar" or last[fact.name] == i]

    def _line(self, line: str) -> list[LogFact]:
        self.lines += 1
        line = line[:LINE_LIMIT]
        self._recent.append(line)
        out: list[LogFact] = []
        if self.lines == 1:
            out.extend(self._run("imports"))
        if line.startswith("[rank"):
            line = _RANK.sub("", line)
        msg, lead = line, True
        if line[:1] == "[":
            prefix = _PREFIX.match(line)
            if prefix is not None:
                msg = line[prefix.end() :]
                lead = self._lead(prefix.group(1))
                self._prefixed(msg, out)
        if not self._started and (msg is not line or "launch_server.py" in line or line.startswith("usage: ")):
            self._started = True
            out.extend(self._run("arguments"))
        if msg.endswith(TRACEBACK):
            self._open(msg, line, prefix_rank=line[: len(line) - len(msg)])
            return out
        if self.tracebacks.state and msg is line:
            out.extend(self.in_traceback(line))
            if self.tracebacks.state == "frames":
                return out
        handler = self._handlers.get(msg[:5])
        if handler is None:
            out.extend(self._text(msg, line))
        elif lead or handler in (self._sigquit, self._child, self._scheduler, self._http):
            out.extend(handler(msg, line))
        return out

    def _prefixed(self, msg: str, out: list[LogFact]) -> None:
        """An ordinary log line ends an exception's message; some loggers prefix every line of a traceback."""
        if self.tracebacks.state == "frames" and msg and (msg[0] in " \t" or EXCEPTION.match(msg)):
            out.extend(self.in_traceback(msg))
        else:
            self.tracebacks.close()

    def _lead(self, rank: str) -> bool:
        lead = self._ranks.get(rank)
        if lead is None:
            lead = self._ranks[rank] = _OTHER_RANK.search(rank) is None
            if len(self._ranks) > 1000:  # ranks are few: this is not SGLang's prefix
                self._ranks = {"": True}
        return lead

    def _open(self, msg: str, line: str, prefix_rank: str) -> None:
        if self._asgi:
            kind, self._asgi = "asgi", False
        else:
            kind = "scheduler" if msg.startswith("Scheduler hit an exception") else ""
        self.tracebacks.open(kind, prefix_rank.strip("[] ")[19:].strip(), self.phase)
