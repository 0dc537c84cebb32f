"""Threads for the CPU kernels: compiled code that releases the GIL, run by the package's own pool.

Numba's own layers do not fit a library: OpenMP kills forked children, workqueue aborts when two Python threads call
it at once, and `parallel=True` multiplies compile time. Here a kernel is a `_jit.loop` over a range of output blocks,
without the GIL; every output has one owner, so results do not depend on the number of threads or on their schedule.

BLAS calls inside a kernel must be single-threaded: `single_threaded_blas` sees to that.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numba

from .._blas import single_threaded_blas

__all__ = ["n_threads", "parallel_for", "single_threaded_blas"]

_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_lock = threading.Lock()


def n_threads() -> int:
    """Threads in use: Numba's number, hence NUMBA_NUM_THREADS or `numba.set_num_threads`."""
    return int(numba.get_num_threads())


def parallel_for(kernel: Callable[[int, int], Any], n_items: int, block: int, *, threads: int | None = None) -> None:
    """Call ``kernel(start, stop)`` for consecutive blocks of ``range(n_items)``, each exactly once.

    The blocks are the same for any number of threads; a free thread takes the next one. The first exception is
    raised again here after all threads have stopped.
    """
    starts = range(0, n_items, block)
    workers = min(threads or n_threads(), len(starts))
    counter = itertools.count()
    failed = threading.Event()
    lock, at_work = threading.Lock(), [0]  # helpers that have begun and not ended

    def work() -> None:
        try:
            while (i := next(counter)) < len(starts) and not failed.is_set():
                kernel(starts[i], min(starts[i] + block, n_items))
        except BaseException:  # an interrupt too, wherever in the loop it comes
            failed.set()
            raise

    def help_along() -> None:
        with lock:
            if failed.is_set():
                return
            at_work[0] += 1
        try:
            work()
        finally:
            with lock:
                at_work[0] -= 1

    helpers = []
    try:
        for _ in range(workers - 1):
            helpers.append(_executor(workers - 1).submit(help_along))
        work()
        wait(helpers)
    except BaseException:
        failed.set()
        _outlast(lock, at_work)
        raise
    for helper in helpers:
        helper.result()


def _outlast(lock: threading.Lock, at_work: list[int]) -> None:
    """Wait until no helper is at work, whatever interrupts come meanwhile.

    The caller gives BLAS its threads back next and may begin other work, while a helper would be in BLAS still.
    """
    while True:
        try:
            with lock:
                if not at_work[0]:
                    return
            time.sleep(1e-3)
        except KeyboardInterrupt:
            pass


def _executor(size: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < size:
            _pool = ThreadPoolExecutor(size, thread_name_prefix="maskerade")  # the former one finishes its work
            _pool_size = size
        return _pool


def _after_fork() -> None:
    """A child has none of its parent's threads, and a lock may have been held by one of them."""
    global _pool, _pool_size, _lock
    _pool, _pool_size, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
