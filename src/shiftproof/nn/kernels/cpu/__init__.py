"""Message sums, statistics, norms and dropout as loops that Numba compiles, for a CPU."""
