"""Runs commands in processes forked from one that has everything loaded, and kills them at a given moment.

A command takes a tenth of a second this way instead of three. It is started as a process of its own, which has
run a few commands before it forks: it reads one JSON object a line and answers each with one. See `Runner`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status (minus the signal that killed it), its seconds and what it said."""

    status: int
    seconds: float
    said: str


class Runner:
    """Commands in forked processes; `close` it."""

    def __init__(self) -> None:
        alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.fork_runner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, **alone},
        )

    def run(self, words: Sequence[object], folder: Path, **how: Any) -> Ended:
        """Run a command in a folder: `kill_after` seconds, with every write failing from number `fail_at` on, or with
        files of at most `limit_bytes`."""
        return self.together([words], folder, **how)[0]

    def together(self, several: Sequence[Sequence[object]], folder: Path, **how: Any) -> list[Ended]:
        """Run commands at the same time in one folder."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"several": [[str(word) for word in words] for words in several], "folder": str(folder), **how}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return [Ended(**one) for one in json.loads(self.process.stdout.readline())]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _serve() -> None:
    import torch
    import torch_geometric.data  # noqa: F401

    import shiftproof.api.fitting
    import shiftproof.cli
    import shiftproof.papers.command
    import shiftproof.report
    import shiftproof.robustness.audit
    import shiftproof.sweeps  # noqa: F401
    from shiftproof.registry import KINDS

    torch.set_num_threads(1)
    for registry in KINDS.values():
        list(registry)
    from tests.hostile.kit import kit

    kit()  # whatever is only loaded when something is trained; on a CPU that leaves no thread behind
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.monotonic()
        children = [_forked(words, number, asked) for number, words in enumerate(asked["several"])]
        if asked.get("kill_after") is not None:
            time.sleep(asked["kill_after"])
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        ended = []
        for number, child in enumerate(children):
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said = _said(asked, number).read_text(errors="replace")[-2000:]
            ended.append({"status": status, "seconds": time.monotonic() - started, "said": said})
        print(json.dumps(ended), file=answers, flush=True)


def _said(asked: dict[str, Any], number: int) -> Path:
    return Path(f"{asked['folder']}.said-{number}")


def _forked(words: list[str], number: int, asked: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    status = 70
    try:
        os.chdir(asked["folder"])
        place = os.open(_said(asked, number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(place, 1)
        os.dup2(place, 2)
        if asked.get("fail_at") is not None:
            _fail_from(asked["fail_at"])
        if asked.get("limit_bytes") is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (asked["limit_bytes"], resource.RLIM_INFINITY))
        status = _command(words)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _command(words: list[str]) -> int:
    if words[0] == "save":  # what the library does, which is no command
        import shiftproof as sp
        from shiftproof.data.readers.storage import save_dataset
        from shiftproof.training.run import Run

        Run.load(words[1]).save("saved/run")
        save_dataset(sp.load("two-bit:per_env=2000"), "saved/data")
        return 0
    from shiftproof import cli

    sys.argv = ["shiftproof", *words]
    cli.main()
    return 0


def _fail_from(number: int) -> None:
    """Let the disk be full from the write of this number on."""
    from shiftproof.runtime import unfinished

    right, written = os.fsync, [0]

    def fsync(handle: int) -> None:
        written[0] += 1
        if written[0] > number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        right(handle)

    unfinished.os.fsync = fsync  # type: ignore[assignment]


if __name__ == "__main__":
    _serve()
