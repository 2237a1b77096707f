"""Small source trees in each style that SGLang has had, a fork of each kind, a plug-in, and trees that are broken."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

SPEC_INFO = """
from enum import Enum, auto

class SpeculativeAlgorithm(Enum):
    DFLASH = auto()
    EAGLE = auto()
    NONE = auto()
"""

PLAIN = {
    "sglang/__init__.py": "raise SystemExit('it was imported')\n",
    "sglang/version.py": "__version__ = '0.5.12'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/speculative/spec_info.py": SPEC_INFO,
    "sglang/srt/names.py": "BACKENDS = ['triton', 'fa3'] + ['flashinfer']\n",
    "sglang/srt/server_args.py": """
import argparse
import dataclasses
from sglang.srt.names import BACKENDS

GROUPS = ("decode", "prefill")

class DeprecatedAction(argparse.Action):
    def __init__(self, option_strings, dest, nargs=0, **kwargs):
        super().__init__(option_strings, dest, nargs=nargs, **kwargs)

    def __call__(self, parser, namespace, values, option_string=None):
        raise ValueError(self.help)

@dataclasses.dataclass
class ServerArgs:
    model_path: str
    host: str = "127.0.0.1"
    port: int = 30000
    mem_fraction_static: float = None

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True, help="where the weights are")
        parser.add_argument("--host", type=str, default=ServerArgs.host)
        parser.add_argument("--port", type=int, default=ServerArgs.port, help=f"port, {1 + 1} of them")
        parser.add_argument("--mem-fraction-static", type=float, default=ServerArgs.mem_fraction_static)
        parser.add_argument("--sizes", type=int, nargs="+", default=[1, 1 + 1])
        parser.add_argument("--attention-backend", choices=BACKENDS, default=None)
        parser.add_argument("--tp-size", "--tensor-parallel-size", "-tp", type=int, default=-(2 - 3))
        parser.add_argument("--disable-cuda-graph", action="store_true")
        parser.add_argument("--disable-piecewise-cuda-graph", action="store_true")
        parser.add_argument("--cuda-graph-max-bs", type=int, default=2 ** 3)
        parser.add_argument("--cuda-graph-bs", type=int, nargs="+")
        parser.add_argument("--fused", action=argparse.BooleanOptionalAction, default=True)
        parser.add_argument("--enable-flashmla", action=DeprecatedAction,
                            help="it is deprecated. Please use '--attention-backend flashmla' instead.")
        parser.add_argument("--speculative-algorithm", type=str, choices=["DFLASH", "EAGLE"])
        for phase in GROUPS:
            parser.add_argument(f"--{phase}-attention", type=str, choices=BACKENDS)
""",
}
"""To 0.5.13: a dataclass beside add_argument."""

ARG_UTILS = """
import dataclasses
from typing import Annotated

A = Annotated

class Arg:
    def __init__(self, help="", aliases=None, cli_name=None, no_cli=False, choices=None, action=None, type_parser=None,
                 nargs=None, action_kwargs=None):
        self.__dict__.update(locals())

def add_cli_args_from_dataclass(parser, cls):
    for field in dataclasses.fields(cls):
        names, kwargs = ["--" + field.name], {}
        parser.add_argument(*names, **kwargs)
"""

FIELDS = """
    # a flag a line
    model_path: A[str, Arg(help="weights", aliases=["--model"])]
    host: A[str, "The host."] = "127.0.0.1"
    tp_size: A[int, Arg(help="ranks", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    context_length: A[Optional[int], Arg(help="longest", type_parser=human_readable_int)] = None
    dtype: A[Literal["auto", "bfloat16"], "of the weights"] = "auto"
    load_format: A[str, Arg(help="how", choices=FORMATS)] = "auto"
    buckets: A[Optional[List[float]], "edges"] = dataclasses.field(default_factory=lambda: [0.5])
    fused: A[Optional[bool], Arg(help="both ways", action=argparse.BooleanOptionalAction)] = None
    enable_metrics: A[bool, "serve /metrics"] = False
    cuda_graph_backend_prefill: A[Optional[str], Arg(help="prefill", choices=Backend.ALL)] = None
    disable_prefill_cuda_graph: A[bool, "no prefill graph"] = False
    disable_decode_cuda_graph: A[bool, "no decode graph"] = False
    cuda_graph_max_bs_decode: A[int | None, "largest"] = None
    cuda_graph_max_bs_prefill: A[int | None, "largest"] = None
    disable_cuda_graph: A[bool, Arg(no_cli=True)] = False
    sampling_backend: A[str, Arg(no_cli=True)] = "pytorch"
    internal: int = 3
    speculative_algorithm: A[Optional[str], "Builtins: DFLASH, EAGLE."] = None
    speculative_draft_model_path: A[Optional[str], "draft"] = None
    speculative_num_draft_tokens: A[Optional[int], "width"] = None
"""

HEAD = """
import argparse
import dataclasses
from typing import List, Literal, Optional
from sglang.srt.arg_groups.arg_utils import A, Arg, add_cli_args_from_dataclass

FORMATS = ["auto", "safetensors"]

class Backend:
    FULL = "full"
    DISABLED = "disabled"
    ALL = [FULL, DISABLED]

def human_readable_int(text):
    return int(text)
"""

MANUAL = """
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--sampling-backend", type=str, choices=_backends(),
                            default=_declared_default("sampling_backend"))
        parser.add_argument("--disable-cuda-graph", action=DeprecatedStoreTrueAction,
                            new_flag="--cuda-graph-backend-{decode,prefill}=disabled",
                            help="Deprecated. Use --cuda-graph-backend-{decode,prefill}=disabled instead.")
        parser.add_argument("--mamba-scheduler-strategy", dest="x", type=str, action=DeprecatedAliasStoreAction,
                            new_flag="--mamba-radix-cache-strategy", help=argparse.SUPPRESS)
        More.add_cli_args(parser)

def _declared_default(name):
    return None

def _backends():
    if name:
        return list(unknown.thing)
    return list(SAMPLERS)

SAMPLERS = ("flashinfer", "pytorch")
from sglang.srt.more import More
"""

MORE = {
    "sglang/srt/more.py": """
class More:
    @staticmethod
    def add_cli_args(parser):
        group = parser.add_argument_group("more")
        group.add_argument("--more-of-it", type=int)
""",
    "sglang/srt/speculative/spec_info.py": SPEC_INFO,
    "sglang/srt/arg_groups/__init__.py": "",
    "sglang/srt/arg_groups/arg_utils.py": ARG_UTILS,
    "sglang/__init__.py": "raise SystemExit('it was imported')\n",
    "sglang/srt/__init__.py": "",
}

ANNOTATED = {
    **MORE,
    "sglang/srt/server_args.py": f"{HEAD}\n@dataclasses.dataclass\nclass ServerArgs:\n{FIELDS}\n{MANUAL}",
}
"""0.5.14 to 0.5.19: annotated fields in server_args.py, and what is left of add_argument."""

NAMESPACES = {
    **MORE,
    "sglang/srt/arg_groups/fields/__init__.py": "",
    "sglang/srt/arg_groups/fields/model.py": f"{HEAD}\nimport msgspec\n\nclass Model(msgspec.Struct):\n{FIELDS}",
    "sglang/srt/server_args.py": f"class ServerArgs:\n{MANUAL}",
}
"""From 0.5.20: namespaces under arg_groups/fields/."""

PR29907 = {
    **NAMESPACES,
    "sglang/srt/speculative/spec_info.py": SPEC_INFO.replace("    EAGLE", "    DDTREE = auto()\n    EAGLE"),
    "sglang/srt/speculative/ddtree_worker.py": "",
    "sglang/srt/arg_groups/fields/spec.py": f"""{HEAD}
class Spec(msgspec.Struct):
    speculative_ddtree_budget: A[Optional[int], "tree nodes"] = None
""",
}
"""A fork with an algorithm and a budget of its own."""

DB_GUO = {
    **ANNOTATED,
    "sglang/srt/arg_groups/tree_args.py": """
def add_tree_args(parser):
    parser.add_argument("--speculative-dflash-enable-ddtree", action="store_true", help="verify a tree")
""",
}
"""A fork that keeps DFLASH and adds a switch, in a module of its own."""

PLUGIN = {
    "ddtree_plugin/__init__.py": "",
    "ddtree_plugin/entry.py": """
def register():
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from ddtree_plugin.args import hook

    @SpeculativeAlgorithm.register("DDTREE", supports_overlap=False)
    def worker(server_args):
        return None
""",
    "ddtree_plugin/tool.py": """
import argparse

def main():
    parser = argparse.ArgumentParser()
    group = parser.add_argument_group("x")
    parser.add_argument("--of-another-program")
    group.add_argument("--of-another-program-too")
""",
    "ddtree_plugin/args.py": """
from ddtree_plugin import tool
from sglang.srt.server_args import add_attention_backend_choices

add_attention_backend_choices(["tree"])

def hook(parser):
    parser.add_argument("--ddtree-report", type=str, default=None)
""",
    "ddtree_plugin-1.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: ddtree-plugin\nVersion: 1.2\n",
    "ddtree_plugin-1.2.dist-info/entry_points.txt": "[sglang.srt.plugins]\nddtree = ddtree_plugin.entry:register\n",
}


def dist(release: str, files: Mapping[str, str], requires: str = "torch==2.11.0") -> dict[str, str]:
    """The files with the metadata of an installed sglang of that release, RECORD included."""
    folder = f"sglang-{release}.dist-info"
    meta = f"Metadata-Version: 2.4\nName: sglang\nVersion: {release}\nRequires-Dist: {requires}\n\nThe text.\n"
    more = {**files, f"{folder}/METADATA": meta}
    rows = []
    for name, text in more.items():
        made = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={made},{len(text.encode())}")
    return {**more, f"{folder}/RECORD": "\n".join([*rows, f"{folder}/RECORD,,"]) + "\n"}


def write(files: Mapping[str, str], where: Path) -> Path:
    """The tree on disk."""
    for name, text in files.items():
        path = where / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return where
