"""`python -m ddtree_kernels.bench run [op]`: ratios of one run, and none for an operation whose test is red."""
