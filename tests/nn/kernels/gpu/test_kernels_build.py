"""The kernels, which other tests run in Triton's interpreter, build for a GPU that is not here."""

import os
import platform
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the kernels need Triton")

BUILD = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from shiftproof.nn.kernels.gpu import norm_kernel, statistics_kernel, weighted_sum_kernel
from shiftproof.nn.kernels.gpu.node_statistics import ROUNDED
from shiftproof.nn.kernels.gpu.sample_norm import NARROW, WIDE

NUMBERS = ("stride", "sample", "samples", "statistic", "rows")
FLAGS = ("WEIGHTED", "DELETE", "PADDED", "OF_ROWS", "OF_WEIGHT", "ADDED", "RELU", "ITSELF", "OF_EDGE", "AFFINE")
ALWAYS = dict.fromkeys(FLAGS, True) | dict(WIDTH=80, BLOCK=128, LEAST=1e-5, MEAN=0, MIN=1, MAX=2, STD=3, SUM=4)
ALWAYS |= dict(OF_EDGES=False, SHARED=False, CHANNELS=80, EPS=1e-5)


def kind_of(name):
    if name in ("real", "mask"):
        return "*i1"
    if name in ("source", "target", "order", "start", "stop"):
        return "*i64"
    counted = name.startswith("num_") or ("_" in name and name.split("_")[-1] in NUMBERS and name != "to_rows")
    return "i32" if counted else "*fp32"


def build(kernel, options=None, **more):
    fixed = {name: value for name, value in (ALWAYS | more).items() if name in kernel.arg_names}
    kinds = {name: "constexpr" if name in fixed else kind_of(name) for name in kernel.arg_names}
    source = ASTSource(kernel, kinds, constexprs=fixed)
    ptx = triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm["ptx"]
    assert "st.global" in ptx
    assert options is None or "fma.rn.f32" not in ptx


for tile in (1, 2):
    build(statistics_kernel.forward, ROUNDED, PART=1, TILE=tile)
    for kernel in ("forward", "backward_to_nodes", "backward_to_edges"):
        build(getattr(weighted_sum_kernel, kernel), TILE=tile)
for part in range(3):
    build(statistics_kernel.backward, ROUNDED, PART=part, TILE=2, SHARED=part == 2)
for width, (rows, cols) in ((6400, WIDE), (80, NARROW)):
    build(norm_kernel.forward, WIDTH=width, ROWS=rows, COLS=cols)
    build(norm_kernel.backward, WIDTH=width, ROWS=rows, COLS=cols)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="Triton brings a compiler for GPUs there")
def test_the_kernels_build_for_a_gpu_that_is_not_here(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", BUILD], check=True, env=environment)
