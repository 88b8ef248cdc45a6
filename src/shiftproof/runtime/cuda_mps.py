"""Several runs on one GPU at the same time."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LOG = "CUDA_MPS_LOG_DIRECTORY"


@contextmanager
def one_gpu_for_many() -> Iterator[bool]:
    """Child processes started inside run their kernels side by side on the GPU, and not in turns.

    Small models fill a few percent of a GPU, and processes that share it in turns gain nothing. NVIDIA's MPS server
    lets their kernels overlap; it is started here for the children alone and ends with them. Yields whether it is
    there: without it (no such program, or one that does not start) the processes take turns.
    """
    if PIPE in os.environ:  # somebody's server is already there
        yield True
        return
    if shutil.which(CONTROL) is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="shiftproof-mps-", ignore_cleanup_errors=True) as folder:
        places = {PIPE: folder, LOG: folder}
        started = subprocess.run([CONTROL, "-d"], env={**os.environ, **places}, capture_output=True, check=False)
        if started.returncode != 0:
            yield False
            return
        os.environ.update(places)
        try:
            yield True
        finally:
            for name in places:
                del os.environ[name]
            subprocess.run(
                [CONTROL], input=b"quit\n", env={**os.environ, **places}, capture_output=True, check=False, timeout=60
            )
