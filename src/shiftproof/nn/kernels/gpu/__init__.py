"""Message sums, statistics and norms as Triton kernels, with the torch form that serves where they do not."""
