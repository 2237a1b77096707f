"""The causes that a finding can name."""

from __future__ import annotations

SLUGS = frozenset(
    (
        *("kv-budget-too-small", "gpu-oom-load", "gpu-oom-graph-capture", "gpu-occupied", "host-memory-short"),
        *("shm-exhausted", "cuda-graph-capture-crash", "piecewise-graph-crash", "jit-toolchain-missing"),
        *("jit-build-oom", "kernel-resource-limit", "kernel-arch-missing", "attention-backend-unsupported"),
        *("torch-abi-mismatch", "nccl-lib-mismatch", "shared-lib-missing", "python-module-missing"),
        *("package-version-gate", "driver-not-ready", "unknown-argument", "model-path-missing", "hub-access"),
        *("checkpoint-corrupt", "model-arch-unsupported", "draft-model-mismatch", "tensor-parallel-shape"),
        *("too-few-gpus", "port-in-use", "rendezvous-failed", "peer-rank-died", "native-crash", "slow-rank-timeout"),
        *("zombie-service", "numa-bind-denied", "unit-exec-failed", "unit-chdir-failed", "unit-user-missing"),
        *("unit-bad-setting", "unit-start-policy", "unit-env-missing"),
        *("healthy-start", "benign-warning", "slow-progress", "stalled-rendezvous", "stalled-lock", "stalled-io"),
        *("stalled-dead-child", "unknown"),
    )
)
"""the taxonomy, and `unknown`."""
