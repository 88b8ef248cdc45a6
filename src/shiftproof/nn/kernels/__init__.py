"""Sums and statistics of messages, norms and dropout, by whatever is fastest where the tensors are.

`dispatch` chooses; behind it `cpu` holds loops that Numba compiles and `gpu` kernels in Triton, each beside the plain
torch form that serves where they do not.
"""
