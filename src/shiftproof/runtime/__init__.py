"""What every room stands on and what knows nothing of learning.

`files` writes a file whole or not at all (JSON, safetensors; nothing is unpickled), `journal` appends lines that
several processes share, `run_lock` says who works on a run, `progress` and `progress_hook` tell how far long work has
come, `deadline` ends it in time. `devices`, `memory` and `cuda_mps` are about where it is done, `workers` about the
processes that do it, `fingerprints` about what did it, and `user_code` reads a Python file of the user's own.
"""
