"""Runs on a Ray cluster are the runs of the local engine, whatever dies in between."""

import os
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from shiftproof.errors import ShiftproofError
from shiftproof.sweeps import Job, ray_engine, rows_of, run_jobs
from shiftproof.sweeps.ray_engine import Ray, _train_on_worker, _write

BITS = "two-bit:per_env=200"


def jobs_in(folder, seeds=20, **settings) -> list[Job]:
    chosen = {"epochs": 3, "widths": "(8,)", "selection": "last", **settings}
    return [
        Job(BITS, method, seed, folder / "two-bit" / method / f"seed-{seed}", chosen, resume=True, device="cpu")
        for method in ("erm", "irm")
        for seed in range(seeds)
    ]


def comparable(jobs):
    return [{k: v for k, v in row.items() if k not in ("device", "commit")} for row in rows_of(jobs)]


def test_a_share_of_a_gpu_is_above_0_and_at_most_1():
    with pytest.raises(ShiftproofError, match="share of a GPU from above 0 to 1, not"):
        Ray(gpu_share=1.5)


def test_at_least_one_task_runs_at_a_time():
    with pytest.raises(ShiftproofError, match="at least one worker is needed, not 0"):
        Ray(workers=0)


class OneByOne:
    """Stands for Ray: a task is done when it is waited for; `most` are the tasks that were under way at a time."""

    def __init__(self) -> None:
        self.tasks: dict[int, tuple] = {}
        self.begun = self.most = 0
        self.is_initialized = lambda: True
        self.cluster_resources = dict
        self.exceptions = SimpleNamespace(RayTaskError=TimeoutError, RayError=ConnectionError)

    def remote(self, function):
        def begin(*arguments) -> int:
            self.begun += 1
            self.tasks[self.begun] = (function, arguments)
            self.most = max(self.most, len(self.tasks))
            return self.begun

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=begin))

    def wait(self, references, num_returns):
        return references[-num_returns:], references[:-num_returns]  # the last one to begin is the first to end

    def get(self, reference):
        function, arguments = self.tasks.pop(reference)
        return function(*arguments)

    def cancel(self, reference) -> None:
        del self.tasks[reference]


@pytest.fixture
def no_cluster(monkeypatch) -> OneByOne:
    ray = OneByOne()
    monkeypatch.setattr(ray_engine, "optional", lambda *_: ray)
    return ray


@pytest.mark.parametrize(("workers", "most"), [(None, 6), (1, 1), (2, 2), (9, 6)])
def test_at_most_so_many_tasks_as_workers_are_asked_for_run_at_a_time(tmp_path, no_cluster, workers, most):
    jobs = jobs_in(tmp_path, seeds=3, epochs=1)
    done = list(run_jobs(jobs, engine=Ray(workers=workers), style="none"))
    assert no_cluster.most == most
    assert sorted(job.out for job in done) == sorted(job.out for job in jobs)
    assert all(job.finished for job in jobs)


def test_after_a_mistake_no_further_task_is_begun(tmp_path, no_cluster):
    jobs = jobs_in(tmp_path, seeds=3, metric="acuracy")
    with pytest.raises(ShiftproofError, match="unknown metric 'acuracy'"):
        list(run_jobs(jobs, engine=Ray(workers=2), style="none"))
    assert no_cluster.begun == 2
    assert not no_cluster.tasks


def test_a_worker_without_the_folder_sends_the_run_back(tmp_path):
    """The same function that Ray calls, with a mark that is not there."""
    local, job = jobs_in(tmp_path / "local", seeds=1)[0], jobs_in(tmp_path / "there", seeds=1)[0]
    list(run_jobs([local], style="none"))
    ours, files = _train_on_worker(job, str(tmp_path / "no mark"), {})
    assert ours
    assert not job.out.exists()
    _write(job.out, files)
    for name in ("metrics.json", "history.json", "config.json"):
        assert (job.out / name).read_bytes() == (local.out / name).read_bytes()


def test_a_file_of_the_users_own_travels_with_its_job(tmp_path):
    job = jobs_in(tmp_path, seeds=1)[0]
    text = "from shiftproof.methods import ERM\n\nclass Travelled(ERM):\n    '''ERM.'''\n"
    ours, files = _train_on_worker(
        replace(job, method="travelled"), str(tmp_path / "no mark"), {"/not/on/this/machine/own.py:Travelled": text}
    )
    assert ours
    assert "metrics.json" in files


def test_an_address_where_nobody_answers_is_one_sentence(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'shiftproof[ray]'")
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(ConnectionError("nobody\nthere")))
    with pytest.raises(ShiftproofError, match="no Ray cluster answers at 'auto': nobody"):
        list(run_jobs(jobs_in(tmp_path, seeds=1), engine=Ray("auto"), style="none"))


@pytest.fixture(scope="module")
def two_nodes():
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'shiftproof[ray]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    cluster.shutdown()


def workers_at_work() -> list[int]:
    """Processes below this one that train a run at the moment."""
    import psutil

    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "shiftproof" in " ".join(process.cmdline()[:1]) or process.name().startswith("ray::shiftproof"):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_a_sweep_with_a_killed_worker_ends_complete_with_the_rows_of_the_local_engine(tmp_path, two_nodes):
    assert len([node for node in two_nodes.nodes() if node["Alive"]]) == 2
    there, here = jobs_in(tmp_path / "ray"), jobs_in(tmp_path / "local")
    assert len(there) == 40
    killed: list[int] = []

    def kill_one() -> None:
        begun = time.monotonic()
        while not killed and time.monotonic() - begun < 300:
            if sum(job.finished for job in there) >= 5 and (found := workers_at_work()):
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
            time.sleep(0.01)

    watcher = threading.Thread(target=kill_one)
    watcher.start()
    done = list(run_jobs(there, engine=Ray(), style="none"))
    watcher.join()
    assert killed, "no worker was killed, so nothing was shown"
    assert {job.out for job in done} == {job.out for job in there}
    list(run_jobs(here, style="none"))
    assert comparable(there) == comparable(here)
    for one, other in zip(there, here, strict=True):
        assert (one.out / "metrics.json").read_bytes() == (other.out / "metrics.json").read_bytes()
    assert not list(tmp_path.rglob(".driver-*"))
    assert not list(tmp_path.rglob("*.taken"))


@pytest.mark.slow
def test_a_mistake_in_a_task_is_raised_as_the_sentence_it_is(tmp_path, two_nodes):
    jobs = jobs_in(tmp_path, seeds=1, metric="acuracy")
    with pytest.raises(ShiftproofError, match="unknown metric 'acuracy'"):
        list(run_jobs(jobs, engine=Ray(), style="none"))
