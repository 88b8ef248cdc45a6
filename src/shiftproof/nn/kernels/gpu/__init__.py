"""Message sums, statistics and norms as Triton kernels, for a GPU."""
