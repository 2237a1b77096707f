"""The command line. An unknown flag or an impossible value exits with 2, before torch is imported."""

from __future__ import annotations

import argparse
import ipaddress
from collections.abc import Callable, Sequence

from ddtree_kernels.decode.settings import DEFAULT_BUDGET, MAX_BUDGET, MODES

PROGRAM = "ddtree-wrapper"
SECRET = "********"
_SUFFIX = {"k": 1024, "m": 1024**2}


def _tokens(text: str) -> int:
    """A number of tokens; k and M as SGLang reads them."""
    factor = _SUFFIX.get(text[-1:].lower(), 1)
    value = float(text[:-1]) * factor if factor > 1 else int(text)
    if not 1 <= value <= 1 << 40 or value != int(value):
        raise argparse.ArgumentTypeError(f"{text} is no whole number of tokens from 1")
    return int(value)


def _between(
    low: float, high: float, kind: type[float] | type[int] = float, *, open_low: bool = False
) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = kind(text)
        if not (low < value if open_low else low <= value) or not value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not {'above' if open_low else 'from'} {low:g} to {high:g}")
        return value

    read.__name__ = kind.__name__
    return read


def _host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if text == "localhost":
            return "127.0.0.1"
        raise argparse.ArgumentTypeError(f"{text!r} is no address, such as 127.0.0.1 or 0.0.0.0") from None


def parser() -> argparse.ArgumentParser:
    """All flags; names, meanings and defaults are SGLang's where it has the flag."""
    out = argparse.ArgumentParser(prog=PROGRAM, description="Serves a Qwen3 target with a DFlash drafter.")
    model = out.add_argument_group("model")
    model.add_argument("--model", "--model-path", dest="model_path", required=True, metavar="PATH",
                       help="a Hugging Face folder, a folder with target/ and draft/, or tiny for the pair that comes "
                       "with the package")  # fmt: skip
    model.add_argument("--draft", "--speculative-draft-model-path", metavar="PATH",
                       help="the drafter's folder; by default the one beside the target")  # fmt: skip
    model.add_argument("--served-model-name", metavar="NAME", help="the name in answers; by default --model")
    model.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    model.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16", "float64"), default="auto",
                       help="auto: float32 on a CPU, else bfloat16")  # fmt: skip
    decoding = out.add_argument_group("decoding")
    decoding.add_argument("--mode", choices=MODES, default="linear")
    decoding.add_argument("--budget", type=_between(1, MAX_BUDGET, int), default=DEFAULT_BUDGET, metavar="N",
                          help=f"tree nodes besides the root ({DEFAULT_BUDGET})")  # fmt: skip
    decoding.add_argument("--spine", action="store_true", help="the drafter's argmax chain is always in the tree")
    decoding.add_argument("--draft-temperature", type=_between(0, 100, open_low=True), default=1.0, metavar="T",
                          help="of the drafter when the tree is built (1)")  # fmt: skip
    decoding.add_argument("--tree-top-k", type=_between(1, 1 << 20, int), metavar="N",
                          help="candidates of a position; by default all that the budget allows")  # fmt: skip
    decoding.add_argument("--random-seed", type=_between(0, 2**62, int), default=0, metavar="N")
    memory = out.add_argument_group("memory")
    memory.add_argument("--mem-fraction-static", type=_between(0, 1, open_low=True), metavar="F",
                        help="share of free memory for weights and KV pool; by default what one full context "
                        "needs")  # fmt: skip
    memory.add_argument("--context-length", type=_tokens, metavar="N",
                        help="most tokens of prompt and answer; by default the model's; k and M are known")  # fmt: skip
    memory.add_argument("--max-total-tokens", type=_tokens, metavar="N", help="a cap of the KV pool")
    memory.add_argument("--chunked-prefill-size", type=_between(1, 1 << 20, int), metavar="N",
                        help="prompt tokens of one pass")  # fmt: skip
    memory.add_argument("--disable-cuda-graph", action="store_true", help="no graph is captured at all")
    server = out.add_argument_group("server")
    server.add_argument("--host", type=_host, default="127.0.0.1")
    server.add_argument("--port", type=_between(1, 65535, int), default=30000)
    server.add_argument("--api-key", metavar="KEY", help="asked for on every endpoint but /health and /metrics")
    server.add_argument("--max-queued-requests", type=_between(0, 1 << 20, int), metavar="N")
    server.add_argument("--drain-seconds", type=_between(0, 3600), default=5.0, metavar="S",
                        help="longest wait for running requests at SIGTERM (5)")  # fmt: skip
    server.add_argument("--decode-log-interval", type=_between(1, 1 << 20, int), default=40, metavar="ROUNDS")
    return out


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments; SystemExit 2 for what is none."""
    return parser().parse_args(argv)


def flags(args: argparse.Namespace) -> dict[str, object]:
    """What was asked for, by SGLang's field names, the key masked."""
    return {name: SECRET if name == "api_key" and value else value for name, value in vars(args).items()}
