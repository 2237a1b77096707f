"""What a decisive log line means: one slug a cause, and a plain remedy where one is certain."""

from __future__ import annotations

import re

# Consequences of a failure elsewhere: never the cause while anything else is known.
CONSEQUENCE = re.compile(
    r"Received sigquit|SIGQUIT received|scheduler (?:died|is dead)|scheduler_\d+ .*crashed|Subprocess \S+ .*crashed"
    r"|^EOFError|Connection (?:closed|reset) by peer|should dump|WorkerProc was terminated|"
    r"Engine core initialization failed"
    r"|leaked semaphore|^Killed\b|start request repeated too quickly|No module named 'common_ops'|"
    r"^KeyboardInterrupt|^SystemExit"
    r"|Broken pipe|BrokenPipeError"
)
# In a chain of exceptions the first is the cause, but these only say that something else failed.
EXPLAINED_BY_NEXT = re.compile(r"^(?:subprocess\.)?CalledProcessError\b|^KeyError\b|^StopIteration\b")
# Compiler output has no prefix and stands before or inside a traceback.
COMPILER = re.compile(
    r"^(?:ptxas (?:fatal|error)|nvcc (?:fatal|error)|ptxas .*error|.*: fatal error: |ld: |.*: error: ).*", re.M
)

_TABLE: tuple[tuple[str, str], ...] = (
    (
        "kv-budget-too-small",
        r"Not enough memory\. Please try to increase|Loaded weights leave no GPU memory|"
        r"Not enough GPU memory for hybrid|state cache is too small to serve|"
        r"Please increase mem[-_]fraction[-_]static",
    ),
    ("gpu-occupied", r"memory capacity is unbalanced"),
    (
        "unknown-argument",
        r"error: (?:unrecognized arguments|ambiguous option|argument |the following arguments are required)",
    ),
    (
        "port-in-use",
        r"(?i)address already in use|port \d+ is (?:already )?in use|\[Errno 98\]|error while attempting to bind",
    ),
    ("jit-build-oom", r"code=137|nvcc.*killed|cicc.*[Kk]illed|Killed signal terminated program"),
    (
        "host-memory-short",
        r"killed by the OOM killer|(?i:out of memory): Killed|exit code:? -9\b|DefaultCPUAllocator|"
        r"Cannot allocate memory",
    ),
    (
        "oom",
        r"(?i)CUDA out of memory|OutOfMemoryError|cudaErrorMemoryAllocation|CUDA error: out of memory|"
        r"NPU out of memory|HIP out of memory",
    ),
    (
        "shm-exhausted",
        r"(?i)/dev/shm|shared memory segment|No space left on device.*nccl|nccl.*No space left on device",
    ),
    ("kernel-resource-limit", r"out of resource: shared memory|OutOfResources"),
    (
        "kernel-arch-missing",
        r"no kernel image is available|Value 'sm_\w+' is not defined|not defined for option 'gpu-name'|"
        r"sm_\w+ is not compatible|is not supported by ptxas|unsupported gpu architecture",
    ),
    ("nccl-lib-mismatch", r"undefined symbol: \w*nccl"),
    (
        "driver-not-ready",
        r"undefined symbol: cu[A-Z]|driver on your system is too old|CUDA driver version is insufficient|"
        r"Driver/library version mismatch|fabric ?manager|system not yet initialized|"
        r"No CUDA GPUs are available|CUDA unknown error",
    ),
    (
        "torch-abi-mismatch",
        r"undefined symbol: \S*(?:c10|_ZN2at|_ZNK2at|torch|_ZN3c10)|undefined symbol|"
        r"compiled with (?:a )?different CUDA|Could not load any common_ops library",
    ),
    ("shared-lib-missing", r"cannot open shared object file|libcuda\w*\.so\S*: cannot open"),
    (
        "package-version-gate",
        r"less than the minimum required version|Compatibility Issue Detected|requires \S+ ?(?:>=|==|<)|"
        r"is required for a normal functioning",
    ),
    ("too-few-gpus", r"invalid device ordinal|device >= 0 && device < num_gpus"),
    (
        "jit-toolchain-missing",
        r"nvcc(?:'|:)? (?:not found|: not found)|Could not find nvcc|Python\.h: No such|fatal error: \S+\.h\w*:|"
        r"CUDA_HOME|Ninja build failed|Ninja is required|ninja: |"
        r"No such file or directory: '(?:\S*/)?(?:nvcc|ninja|gcc|cc)'|Failed to find C compiler",
    ),
    (
        "hub-access",
        r"(?i)401 Client Error|gated repo|couldn't connect to 'https|Repository Not Found|"
        r"LocalEntryNotFound|outgoing traffic has been disabled|offline mode|"
        r"Max retries exceeded with url",
    ),
    (
        "draft-model-mismatch",
        r"DFLASH requires setting|mask_token_id is outside|target_layer_ids contains|set_eagle3_layers_to_capture|"
        r"set_dflash|draft model .*(?:mismatch|not)|speculative_draft_model_path",
    ),
    (
        "model-path-missing",
        r"Repo id must be in the form|Cannot find any model weights|is not a local folder|"
        r"does not appear to have a file named config\.json|Can't load the configuration of|"
        r"Incorrect path_or_model_id|No such file or directory: '\S*config\.json'",
    ),
    (
        "checkpoint-corrupt",
        r"SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|incomplete metadata|invalid load key|"
        r"PytorchStreamReader",
    ),
    ("context-too-long", r"is greater than the derived context_length|longer than the derived"),
    ("tensor-parallel-shape", r"not divisible by|is not divisible|must be divisible"),
    (
        "model-arch-unsupported",
        r"but Transformers does not recognize|are not supported for now|Unsupported architectures|"
        r"does not recognize this architecture|"
        r"trust_remote_code=True|has no SGLang implementation",
    ),
    (
        "attention-backend-unsupported",
        r"(?i)attention backend|FlashAttention v?\d|flashinfer.*not (?:supported|available)|head_dim .*not supported",
    ),
    ("python-module-missing", r"ModuleNotFoundError|No module named|cannot import name"),
    (
        "slow-rank-timeout",
        r"wait timeout after|Timed out after \d+ ?(?:mins|seconds|ms)|watchdog timeout \(self|"
        r"DistStoreError|socket has timed out",
    ),
    (
        "rendezvous-failed",
        r"Gloo connectFullMesh|ncclRemoteError|NCCL error|ncclSystemError|ncclInternalError|"
        r"unhandled (?:system|cuda) error|"
        r"Network is unreachable|Unable to find address|connect\(\) timed out|Name or service not known",
    ),
    ("native-crash", r"exit code:? -(?:11|7|6|4)\b|Segmentation fault|Fatal Python error|SIGSEGV|SIGABRT|Bus error"),
    ("numa-bind-denied", r"set_mempolicy|numactl|numa_bind"),
    ("unit-exec-failed", r"Failed at step EXEC|status=203/EXEC|Failed to (?:locate executable|execute)"),
    ("unit-chdir-failed", r"Failed at step CHDIR|status=200/CHDIR"),
    ("unit-user-missing", r"Failed at step USER|status=217/USER"),
    ("piecewise-graph-crash", r"Piecewise CUDA Graph failed|Capture prefill CUDA graph failed|for prefill runner"),
    ("cuda-graph-capture-crash", r"Capture cuda graph failed|Capture \S* ?(?:decode|verify) CUDA graph failed"),
)
_COMPILED = tuple((slug, re.compile(pattern)) for slug, pattern in _TABLE)


def classify(line: str, message: str = "", phase: str = "", served: bool = False) -> str:
    """The slug of a decisive line; `message` are the lines that follow it, `phase` what was under way."""
    text = f"{line}\n{message}"
    for slug, pattern in _COMPILED:
        if pattern.search(text) is not None:
            if slug != "oom":
                return slug
            return (
                "gpu-oom-graph-capture"
                if "graphs" in phase or "graph failed" in text
                else ("gpu-oom-serving" if served else "gpu-oom-load")
            )
    if "piecewise" in phase:
        return "piecewise-graph-crash"
    return "cuda-graph-capture-crash" if "graphs" in phase else "exception"


_REMEDY = {
    "kv-budget-too-small": "raise --mem-fraction-static; on hybrid models lower --max-running-requests first",
    "gpu-oom-graph-capture": "lower --mem-fraction-static by 0.02 to 0.05, or the largest graph batch size",
    "gpu-oom-load": "use a GPU with more free memory, more --tp-size, or a quantised checkpoint",
    "cuda-graph-capture-crash": "try another --attention-backend; as the last resort --disable-cuda-graph",
    "piecewise-graph-crash": "turn the prefill graph off: --disable-piecewise-cuda-graph (0.5.14 and later: "
    "--cuda-graph-backend-prefill=disabled); --disable-cuda-graph alone does not before 0.5.14",
    "unknown-argument": "remove or correct the flag: this build does not know it so",
    "port-in-use": "end the program that owns the port, or give the service another port",
    "model-path-missing": "correct the model path, or make it readable for the unit's user",
}


def remedy_of(slug: str, phase: str = "") -> str:
    """One line on what to change, '' where nothing is certain."""
    if slug == "kernel-arch-missing" and "graphs" in phase:
        return (
            "the compiler does not know this GPU: a wheel for it, or TRITON_PTXAS_PATH; "
            + _REMEDY["piecewise-graph-crash" if "piecewise" in phase else "cuda-graph-capture-crash"]
        )
    return _REMEDY.get(slug, "")
