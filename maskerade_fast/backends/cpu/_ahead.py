"""A second process compiles half of the loops of a first fit, while this one compiles and runs the others.

Numba compiles in one thread at a time, whatever their number, but two processes fill one disk cache. The helper starts
when this process finds the first loop that the cache lacks, so never on a machine that has all of them. It works
through `_jobs` and names each module whose loops are done; this process waits for one when it needs a loop of that
module (`_cache.LoopCache`), and compiles it itself where the helper has ended before. The helper prints nothing,
ignores Ctrl-C and ends with its parent.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import _distance_loops as _distances
from . import _distance_tiles as _tiles
from . import _joint_pairs, _pair_quantiles, _pair_sums, _student_loops
from ._cache import Compilations, LoopCache
from ._gram_loops import gram_entries
from ._host_loops import student_sums
from ._jit import cache_folder
from ._parallel import n_threads
from .distances import pairwise_distance, prepare_atoms
from .hyperkernel import covariance_from_distance
from .mixture_prediction import joint_pair_moments, pair_log_density, pair_moments, pair_quantiles

__all__ = ["compile_ahead", "run_helper"]

_MODULES = [m.__name__ for m in (_student_loops, _distances, _tiles, _pair_sums, _joint_pairs, _pair_quantiles)]


def compile_ahead(n_dims: int, say: Callable[[], Any] | None = None) -> None:
    """Have a second process help where the disk cache lacks the loops of a fit in `n_dims` dimensions.

    None is started with one thread or processor, or without a folder for the cache.

    Parameters
    ----------
    n_dims : int
    say : callable, optional
        Called if there is something to compile, before that begins.
    """
    if not _helper.started and min(n_threads(), _processors()) > 1 and cache_folder() is not None:
        Compilations.at_start.append(lambda: _helper.start(n_dims))
    if say is not None:
        Compilations.at_start.append(say)
    gram_entries()  # every fit needs these: whether they are in the cache decides at once
    if say in Compilations.at_start:
        Compilations.at_start.remove(say)


class _Helper:
    """The second process, seen from the first."""

    def __init__(self) -> None:
        self.started = False
        self._process: Any = None
        self._waiting: set[str] = set()  # modules that it has not done

    def start(self, n_dims: int) -> None:
        """Start it, once; where that fails this process compiles all."""
        if self.started or not sys.executable:  # an embedded interpreter may have no program
            return
        self.started = True
        import subprocess

        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import run_helper; run_helper({int(n_dims)})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return
        self._waiting = set(_MODULES)
        LoopCache.await_helper = staticmethod(self.wait_for)
        atexit.register(self.stop)

    def wait_for(self, module: str) -> bool:
        """Wait until the loops of `module` are compiled, or the helper has ended; False if it has no part in them."""
        waited = module in self._waiting
        if waited:
            Compilations.running += 1  # it counts as compiling
        try:
            while module in self._waiting:
                line = self._process.stdout.readline()
                if line:
                    self._waiting.discard(line.decode().strip())
                else:
                    self.stop()
        finally:
            Compilations.running -= waited
        return waited

    def stop(self) -> None:
        """End it."""
        self._waiting = set()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


_helper = _Helper()


def _after_fork() -> None:
    """A child of this process has no helper; the pipes stay the parent's."""
    global _helper
    _helper = _Helper()
    LoopCache.await_helper = staticmethod(lambda module: False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def run_helper(n_dims: int) -> None:
    """The second process: compile, and name on the standard output each module that is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for modules, job in _jobs(n_dims):
        job()
        os.write(1, "".join(f"{module.__name__}\n" for module in modules).encode())


def _end_with_parent() -> None:
    """The standard input ends when the parent does, however it ended."""
    os.read(0, 1)
    os._exit(1)


def _jobs(n_dims: int) -> Iterator[tuple[tuple[Any, ...], Callable[[], Any]]]:
    """What the helper compiles, in the order in which a fit comes to need it, and the modules where that is."""
    one = np.ones((1, 1))
    atoms: Any = None

    def distances() -> None:
        nonlocal atoms
        atoms = prepare_atoms(np.array([0, 1]), np.ones(1), np.ones((1, 2 * n_dims)))
        pairwise_distance(atoms)
        covariance_from_distance(one, outputscale=1.0, lengthscale=1.0)

    def sums_over_pairs() -> None:
        pair_moments(one, one, one)
        pair_log_density(one, one, one, one[0])

    students = (one, np.array([0, 1]), one, one[None], one, one[0], 6, np.array([-1]))
    yield (_student_loops,), lambda: student_sums(*students)
    yield (_distances, _tiles), distances
    yield (_pair_sums,), sums_over_pairs
    yield (_joint_pairs,), lambda: joint_pair_moments(one, one, one[None], one[0])
    yield (_pair_quantiles,), lambda: pair_quantiles(one, one, one, 0.5 * one)


def _processors() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
