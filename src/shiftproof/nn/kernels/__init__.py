"""Sums and statistics of messages, norms and dropout, by whatever is fastest where the tensors are.

`dispatch` chooses; `reference` is written with torch's own operations, `cpu` holds loops that Numba compiles, `gpu`
kernels in Triton.
"""
