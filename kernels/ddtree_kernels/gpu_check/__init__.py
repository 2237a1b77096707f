"""Seconds instead of a lost night: do Triton, DDTree's kernels and CUDA graphs work on this GPU with this torch?

`python -m ddtree_kernels.gpu_check` runs each stage in a child of its own, under a memory cap and a time limit. Nothing
is installed; the parent imports neither torch nor triton.
"""
