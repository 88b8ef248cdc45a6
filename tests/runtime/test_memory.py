"""Inside a run, memory that a tensor gives back serves the next one; afterwards all is as before."""

from __future__ import annotations

import os
import resource

import pytest
import torch

from shiftproof.runtime import memory

CPU = torch.device("cpu")
NUMBERS = 20 << 20  # of a tensor of 80 MiB, which glibc would ask the system for
PAGES = 4 * NUMBERS // resource.getpagesize()


@pytest.fixture
def glibc(monkeypatch):
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    monkeypatch.setenv(memory.VARIABLE, "1")
    memory._glibc.cache_clear()
    if memory._glibc() is None:
        pytest.skip("a C library that cannot be told, or was told already")
    yield
    memory._glibc.cache_clear()


def pages_of_a_tensor() -> int:
    """How many pages the system hands out for a large tensor."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(NUMBERS).zero_()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def pages_once_settled() -> int:
    """The same for the best of several: a small piece may come to lie in what the one before gave back."""
    return min(pages_of_a_tensor() for _ in range(5))


def held() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def huge_pages() -> bool:
    """Whether pages are so large that counting them says nothing."""
    return pages_of_a_tensor() < PAGES / 2


def test_a_second_tensor_takes_the_memory_of_the_first(glibc):
    if huge_pages():
        pytest.skip("this system hands out huge pages")
    with memory.reused_memory(CPU):
        assert pages_once_settled() < PAGES / 10
    taken = [torch.empty(NUMBERS) for _ in range(3)]  # what lies below a small piece cannot be given back: now in use
    assert pages_once_settled() > PAGES / 2
    del taken


def test_the_innermost_does_not_end_it_for_the_outer_one(glibc):
    if huge_pages():
        pytest.skip("this system hands out huge pages")
    with memory.reused_memory(CPU):
        with memory.reused_memory(CPU):
            pages_of_a_tensor()
        assert pages_once_settled() < PAGES / 10


def test_afterwards_it_is_given_back_also_when_the_run_fails(glibc):
    def run_that_fails() -> None:
        with memory.reused_memory(CPU):
            torch.empty(NUMBERS).zero_()
            assert held() > before + 2 * NUMBERS
            raise ZeroDivisionError

    before = held()
    with pytest.raises(ZeroDivisionError):
        run_that_fails()
    assert held() < before + 2 * NUMBERS


@pytest.mark.parametrize("name", ["MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_settings_of_the_user_are_left_alone(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv(memory.VARIABLE, "1")
    memory._glibc.cache_clear()
    try:
        assert memory._glibc() is None
        with memory.reused_memory(CPU):
            assert memory._inside == 0
    finally:
        monkeypatch.undo()
        memory._glibc.cache_clear()


def test_the_allocator_of_a_process_that_has_not_asked_is_left_alone(glibc, monkeypatch):
    monkeypatch.delenv(memory.VARIABLE)
    with memory.reused_memory(CPU):
        assert memory._inside == 0


def test_the_command_asks_for_it_and_a_user_may_refuse(monkeypatch):
    import shiftproof.cli as cli

    for said, expected in ((None, "1"), ("0", "0")):
        monkeypatch.delenv(memory.VARIABLE, raising=False)
        if said is not None:
            monkeypatch.setenv(memory.VARIABLE, said)
        monkeypatch.setattr(cli, "app", lambda: None)
        cli.main()
        assert os.environ[memory.VARIABLE] == expected


def test_a_gpu_has_its_own_way():
    with memory.reused_memory(torch.device("cuda")):
        assert memory._inside == 0
