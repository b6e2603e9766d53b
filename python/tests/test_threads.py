"""Calls from many threads: the same results, errors that stay apart, no lock held, nothing left behind, and fork."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calls import Case, call, every, numbers_of, same_bits, taken

import switchyard

THREADS = 16


def together(work: Callable[[int], Any], count: int = THREADS) -> list[Any]:
    """Runs work(0), work(1), ... in threads of their own that begin at the same moment; the results in order."""
    gate = threading.Barrier(count)

    def begin(i: int) -> Any:
        gate.wait()
        return work(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def run(case: Case) -> tuple[Any, ...]:
    return call(case, taken(case, lambda array: array.copy()))


@pytest.fixture(autouse=True)
def same_settings() -> Iterator[None]:
    """Threads and kernel table are the process's: they are put back."""
    yield
    switchyard.configure(threads=None, isa=None)


# ---- Results ----


def test_every_operator_in_every_thread() -> None:
    cases = [case for _, case in every()]
    want = [run(case) for case in cases]

    def work(i: int) -> int:
        compared = 0
        for at in np.random.default_rng(i).permutation(len(cases)):
            for ours, alone in zip(run(cases[at]), want[at], strict=True):
                assert (ours is None) == (alone is None), cases[at].operator
                assert ours is None or same_bits(ours, alone), cases[at].operator
                compared += 1
        return compared

    assert set(together(work)) == {sum(map(len, want))}


def large() -> Case:
    """Enough rows that the work is shared among the threads of the library."""
    cache = np.arange(16384 * 64, dtype=np.float32).reshape(16384, 64)
    indices = np.random.default_rng(5).integers(0, 16384, 16384)
    return Case("kv_gather", {"cache": cache, "indices": indices, "block_table": np.arange(1024)}, {"block_size": 16})


def test_errors_stay_with_their_thread() -> None:
    """The sentence of a call is never that of another thread's."""
    cache, table = np.zeros((4, 2)), np.array([1, 0])

    def work(i: int) -> set[str]:
        said = set()
        for step in range(300):
            with pytest.raises(IndexError) as caught:
                switchyard.kv_gather(cache, np.array([100 + i]), table, block_size=2)
            said.add(f"{caught.value} {caught.value.fault.value}")
            assert switchyard.kv_gather(cache, np.array([i % 4]), table, block_size=2).shape == (1, 2), step
        return said

    for i, said in enumerate(together(work)):
        why = f"kv_gather: indices at batch 0, position 0 is {100 + i}, want 0 or more and below 4 (INDEX_RANGE)"
        assert said == {f"{why} {100 + i}"}


def test_one_output_of_many_writers() -> None:
    """Threads that fill parts of one array do not disturb each other."""
    cache = np.arange(1024 * 8, dtype=np.float32).reshape(1024, 8)
    out = np.zeros((THREADS, 64, 8), np.float32)
    picked = np.random.default_rng(1).integers(0, 1024, (THREADS, 64))

    def work(i: int) -> None:
        for _ in range(50):
            switchyard.kv_gather(cache, picked[i], np.arange(512), block_size=2, out=out[i])

    together(work)
    np.testing.assert_array_equal(out, cache[picked])


# ---- The interpreter's lock ----


def ran_meanwhile(work: Callable[[], Any]) -> bool:
    """Whether another thread of Python ran while `work` did. Nobody is made to give up the lock by the clock."""
    done, go = threading.Event(), threading.Lock()
    go.acquire()

    def other() -> None:
        go.acquire()
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    try:
        go.release()  # the other thread wakes, and waits for the interpreter's lock
        work()
        ran = done.is_set()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    return ran


@pytest.mark.skipif(not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="this Python has no lock")
def test_the_lock_is_released_during_a_call() -> None:
    case, out = large(), np.empty((16384, 64), np.float32)

    def working() -> None:
        switchyard.kv_gather(**case.arrays, **case.numbers, out=out)

    def holding() -> None:
        sum(i * i for i in range(300_000))

    working()
    assert not any(ran_meanwhile(holding) for _ in range(10)), "the lock can be held: this test can fail"
    assert any(ran_meanwhile(working) for _ in range(100))  # once would do; a busy machine may not wake the other


# ---- Contexts of threads ----


def status(field: str) -> int:
    """A number of /proc/self/status: kB of memory, or threads."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def threads_one_by_one(count: int) -> None:
    """Each needs megabytes of scratch, in a context of its own."""
    logits = numbers_of("float32", 4, 65536)
    out = switchyard.Sample(np.zeros(4, np.int64), *[None] * 6)

    def work() -> None:
        switchyard.sample(logits, top_p=0.5, seed=1, out=out)

    for _ in range(count):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_contexts_end_with_their_threads() -> None:
    threads_one_by_one(30)
    gc.collect()
    before, threads = status("VmRSS"), status("Threads")
    threads_one_by_one(300)
    gc.collect()
    assert status("VmRSS") - before < 300 * 256, "300 contexts of more than a megabyte each would be left behind"
    assert status("Threads") <= threads


def test_settings_are_taken_over_by_running_threads() -> None:
    """Threads change the settings while others work: nobody waits for ever, no result changes."""
    cases = [*(case for _, case in every()), large()][::-10]  # large() is one of them
    want = [run(case) for case in cases]
    tables = switchyard.info().isa_tables

    def work(i: int) -> int:
        for step in range(12):
            if i % 4 == 0:
                switchyard.configure(threads=1 + (i + step) % 3, isa=tables[step % len(tables)])
            for case, alone in zip(cases, want, strict=True):
                for ours, expected in zip(run(case), alone, strict=True):
                    assert ours is None or same_bits(ours, expected), case.operator
        return i

    assert together(work, 8) == list(range(8))
    switchyard.configure(threads=2)
    assert set(together(lambda _: switchyard.info().threads, 4)) == {2}


# ---- Processes ----


def in_a_process(program: str, **env: str) -> str:
    """What a program says; it must end by itself, quietly and well. Python 3.12 warns of every fork beside threads."""
    warned = ["-W", "error::RuntimeWarning", "-W", "ignore::DeprecationWarning"]
    done = subprocess.run(
        [sys.executable, *warned, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(switchyard.__file__).parent.parent,
        env={**os.environ, **env},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize("beside", ["numpy", "torch"])
def test_the_environment_has_a_default_number_of_threads(beside: str) -> None:
    """Stronger than PyTorch's number; configure is stronger."""
    pytest.importorskip(beside)
    program = """
    import numpy, switchyard
    if NAME == "torch":
        import torch
        torch.set_num_threads(5)
        print(len(switchyard.sample(torch.zeros(2, 3), temperature=0).token))
    try:
        print(switchyard.info().threads)
        switchyard.configure(threads=2)
        print(switchyard.info().threads)
        switchyard.configure(threads=None)
        print(switchyard.sample(numpy.zeros((2, 3), "f4"), temperature=0).token, switchyard.info().threads)
    except ValueError as error:
        print(error)
    """.replace("NAME", repr(beside))
    first = "2\n" if beside == "torch" else ""
    assert in_a_process(program, SWITCHYARD_THREADS="3") == f"{first}3\n2\n[0 0] 3\n"
    if beside == "torch":
        assert in_a_process(program, SWITCHYARD_THREADS="").endswith("\n5\n2\n[0 0] 5\n")
    else:
        said = in_a_process(program, SWITCHYARD_THREADS="many")
        assert "SWITCHYARD_THREADS in the environment is no number of threads, want 1 or more" in said


SETUP = """
    import os, sys, threading
    import numpy as np
    import switchyard

    cache = np.arange(16384 * 64, dtype=np.float32).reshape(16384, 64)
    indices = np.arange(16384)[::-1].copy()

    def works():
        got = switchyard.kv_gather(cache, indices, np.arange(1024), block_size=16)
        drawn = switchyard.sample(cache[:64], top_k=3, seed=1)
        return bool((got == cache[::-1]).all()) and drawn.token.shape == (64,)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python itself warns of a fork beside threads")
def test_fork_beside_working_threads() -> None:
    said = in_a_process(
        SETUP
        + """
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            assert works()

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if works() else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
    print("done")
    """
    )
    assert said == "done\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_pools_of_processes() -> None:
    """As data loaders have them: a child inherits the parent's context, and threads that are not there any more."""
    said = in_a_process(
        SETUP
        + """
    import multiprocessing

    assert works()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.starmap(works, [()] * 6), works())
    """
    )
    assert said == f"{[True] * 6} True\n"


def test_the_process_ends_beside_a_call() -> None:
    """A daemon thread inside a call does not abort it. The call is long, so that the end always comes during one."""
    said = in_a_process(
        """
    import threading, time
    import numpy as np
    import switchyard

    logits, began = np.random.default_rng(1).random((256, 100000), np.float32), threading.Event()

    def busy():
        began.set()
        while True:
            switchyard.sample(logits, top_k=50, temperature=0.8, seed=1)

    threading.Thread(target=busy, daemon=True).start()
    began.wait()
    time.sleep(0.5)
    print("over")
    """
    )
    assert said == "over\n"
