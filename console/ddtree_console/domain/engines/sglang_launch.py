"""The launch of SGLang: profile and slot to argv, and the flags that the launch editor offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ddtree_console.domain.engines import dialects, plugin
from ddtree_console.domain.engines.base import Command, FlagHelp
from ddtree_console.domain.spec import Profile, Service

MODULE = "sglang.launch_server"
PYTHON = "/usr/bin/python3"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 30000
MODEL_FLAGS = ("model-path", "model")

FLAGS: tuple[FlagHelp, ...] = (
    FlagHelp("mem-fraction-static", "float", "share of GPU memory for weights and KV pool; the rest is left for "
             "activations and graphs", 0.05, 0.99),
    FlagHelp("context-length", "int", "longest prompt plus output in tokens; k and M are accepted. It does not size "
             "the pool", 1, 100_000_000),
    FlagHelp("max-running-requests", "int", "requests decoded at once; on hybrid models each costs state memory times "
             "draft tokens", 1, 65536),
    FlagHelp("tp-size", "int", "GPUs that share one model (tensor parallel)", 1, 64),
    FlagHelp("disable-cuda-graph", "bool", "no decode graph; 0.5.7 to 0.5.13 still capture the piecewise graph"),
    FlagHelp("disable-piecewise-cuda-graph", "bool", "no piecewise prefill graph; gone since 0.5.20"),
    FlagHelp("disable-prefill-cuda-graph", "bool", "no prefill graph, from 0.5.14"),
    FlagHelp("disable-decode-cuda-graph", "bool", "no decode graph, from 0.5.14"),
    FlagHelp("cuda-graph-max-bs", "int", "largest batch with a captured graph; gone since 0.5.20", 1, 4096),
    FlagHelp("cuda-graph-max-bs-decode", "int", "largest batch with a captured decode graph, from 0.5.14", 1, 4096),
    FlagHelp("cuda-graph-max-bs-prefill", "int", "largest prefill with a captured graph, from 0.5.14", 1, 65536),
    FlagHelp("max-total-tokens", "int", "cap of the KV pool in tokens", 1, None),
    FlagHelp("chunked-prefill-size", "int", "tokens of a prefill chunk; -1 turns chunking off", -1, None),
    FlagHelp("max-mamba-cache-size", "int", "state slots of a hybrid model", 1, None),
    FlagHelp("page-size", "int", "tokens of a KV page; tree verification needs 1", 1, 1024),
    FlagHelp("kv-cache-dtype", "str", "auto, bf16, fp8_e5m2, fp8_e4m3 ..."),
    FlagHelp("attention-backend", "str", "triton, flashinfer, fa3 ...; fa3 verifies a tree as a chain"),
    FlagHelp("mamba-ssm-dtype", "str", "bfloat16 halves the state of a hybrid model"),
    FlagHelp("disable-radix-cache", "bool", "no prefix cache"),
    FlagHelp("disable-overlap-schedule", "bool", "no overlap of CPU scheduling with the GPU"),
    FlagHelp("enable-metrics", "bool", "serve /metrics: the best source of TOK/S and ACCEPT"),
    FlagHelp("speculative-num-draft-tokens", "int", "tokens verified a step, root included", 2, 1025),
    FlagHelp("speculative-dflash-block-size", "int", "tokens that the draft model predicts a step", 2, 1024),
    FlagHelp("log-level", "str", "info; at warning every start-up phase line vanishes"),
)  # fmt: skip

KNOWN = frozenset(f.name for f in FLAGS) | {
    "model-path", "model", "host", "port", "tp", "tensor-parallel-size", "base-gpu-id", "max-queued-requests",
    "max-prefill-tokens", "quantization", "dtype", "prefill-attention-backend", "decode-attention-backend",
    "disable-cuda-graph-padding", "cuda-graph-config", "cuda-graph-backend-decode", "cuda-graph-backend-prefill",
    "cuda-graph-bs", "enable-piecewise-cuda-graph", "debug-cuda-graph", "speculative-algorithm", "speculative-algo",
    "speculative-draft-model-path", "speculative-draft-model", "speculative-num-steps", "speculative-eagle-topk",
    "speculative-draft-attention-backend", "speculative-draft-window-size", "speculative-draft-kv-cache-dtype",
    "speculative-draft-model-quantization", "speculative-attention-mode", "speculative-ddtree-budget",
    "mamba-full-memory-ratio", "mamba-radix-cache-strategy", "mamba-scheduler-strategy", "mamba-backend",
    "linear-attn-backend", "enable-linear-replayssm-spec", "api-key", "admin-api-key", "watchdog-timeout",
    "soft-watchdog-timeout", "skip-server-warmup", "decode-log-interval", "sleep-on-idle", "trust-remote-code",
    "served-model-name", "config", "load-format", "skip-tokenizer-init",
}  # fmt: skip
"""Flags that stand for themselves; an unknown name that begins one of them is an argparse prefix."""

_SUFFIX = {"k": 1024, "m": 1024**2}
_TRUE, _FALSE = ("true", "yes", "on", "1", ""), ("false", "no", "off", "0")


def validate_flag(flag: FlagHelp, text: str) -> Any:
    """The value in the editor's text; ValueError says what was read and what is wanted."""
    read = text.strip()
    if any(c in text for c in "\n\0"):
        raise ValueError(f"{flag.name}: a newline or NUL cannot stand in a launch flag")
    if flag.kind == "bool":
        if read.lower() in (*_TRUE, *_FALSE):
            return read.lower() in _TRUE
        raise ValueError(f"{flag.name}: read {read!r}, wanted true or false")
    if flag.kind == "str":
        if not read:
            raise ValueError(f"{flag.name}: read nothing, wanted a text")
        return read
    value: float | int
    try:
        value = float(read) if flag.kind == "float" else _whole(flag.name, read)
    except (ValueError, OverflowError):
        wanted = "a number such as 0.88" if flag.kind == "float" else "a whole number"
        raise ValueError(f"{flag.name}: read {read!r}, wanted {wanted}") from None
    below = flag.low is not None and not value >= flag.low
    if below or (flag.high is not None and not value <= flag.high):
        limits = f"at least {flag.low:g}" if flag.high is None else f"{flag.low:g} to {flag.high:g}"
        raise ValueError(f"{flag.name}: read {value:g}, wanted {limits}")
    return value


def _whole(name: str, text: str) -> int:
    """A whole number; context-length takes k and M as SGLang does."""
    factor = _SUFFIX.get(text[-1:].lower(), 1) if name == "context-length" else 1
    digits = text[:-1] if factor > 1 else text
    value = float(digits) * factor if factor > 1 else int(digits.replace(",", "").replace("_", ""))
    if value != int(value):
        raise ValueError(text)
    return int(value)


def flag_words(flags: Mapping[str, Any]) -> Iterable[str]:
    """The flags as arguments, in order: True is bare, False and None are left out, a list gives several values."""
    for name, value in flags.items():
        if value is False or value is None:
            continue
        yield f"--{name}"
        if value is True:
            continue
        for item in value if isinstance(value, (list, tuple)) else (value,):
            yield str(item)


def common_warnings(flags: Mapping[str, Any], args: Iterable[str]) -> list[str]:
    """Warnings that hold for any server."""
    given = list(args)
    key_args = [a.split("=")[0] for a in given if a.split("=")[0] in ("--api-key", "--admin-api-key")]
    key_args += [f"--{name}" for name in ("api-key", "admin-api-key") if flags.get(name)]
    return [
        f"{name} is an argument: systemctl show, /proc and SGLang's own log reveal it"
        for name in dict.fromkeys(key_args)
    ]


def launch_flags(profile: Profile) -> tuple[dict[str, Any], dict[str, str]]:
    """(flags, environment) with the intent spelled out; flags that the profile states win. DialectError."""
    spelling = dialects.spell(profile.dialect, profile.speculative)
    flags = {**spelling.flags, **profile.flags}
    ordered = {name: flags[name] for name in (*profile.flags, *spelling.flags)}
    return ordered, dict(spelling.env)


def command(profile: Profile, service: Service) -> Command:
    """SGLang's launch in this slot; ValueError for a missing model, DialectError for an intent without spelling."""
    if not profile.model:
        raise ValueError(f"profile {profile.name}: model is missing")
    flags, env = launch_flags(profile)
    host = flags.pop("host", None) or DEFAULT_HOST
    flags.pop("port", None)
    start = profile.command or (profile.python or PYTHON, "-m", MODULE)
    argv = (
        *start, "--model-path", profile.model, *flag_words(flags), *profile.args,
        "--host", str(host), "--port", str(service.port),
    )  # fmt: skip
    warnings = [*dialects.flag_warnings(profile.dialect, flags), *common_warnings(flags, profile.args)]
    warnings += plugin.warnings(profile, flags)
    if flags.get("log-level") in ("warning", "error", "critical"):
        warnings.append("--log-level hides the start-up phases: only the port and the first token will be seen")
    return Command(argv, env, tuple(warnings))
