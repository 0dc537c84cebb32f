"""CPU threads (C30 to C32), and what lies round them: processes in processes, limits on threads, interrupts."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.backends.cpu import _parallel, likelihood

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "maskerade_fast"

# What the programs below share: a fit with all that belongs to it, as one line of digits.
PRELUDE = """
import json, os, sys, threading
import numpy as np
import maskerade_fast as mf
x = np.linspace(0.0, 1.0, 40) ** 1.2
def numbers(seed=0):
    y = np.sin(9 * x) + 0.1 * np.cos(50 * x)
    post = mf.marginalise(x, y, budget=40, nodes=64, max_components=2, seed=seed, device="cpu")
    g = post.mixtures
    distances, likelihoods = mf.gaussian_mmd2(g, bandwidth=1.0), mf.log_likelihood(g, x, y, grad=True)
    parts = [post.log_evidence, *post.predict(x[:3]).mean, distances.sum(), likelihoods.value.sum()]
    return [float(part).hex() for part in parts]
"""


def program(code: str, timeout: float = 100.0, **environment: str) -> Any:
    """The JSON on the last line of a program's output; fails if it hangs, aborts or says anything else."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def expected() -> Any:
    """What one thread of one process says."""
    return program("print(json.dumps(numbers()))", NUMBA_NUM_THREADS="1")


@pytest.mark.parametrize("layer", ["workqueue", "default"])
def test_c30_threads_of_python_under_any_layer(layer: str, expected: Any) -> None:
    """Eight threads at once, with the layer of Numba forced that aborts on concurrent use."""
    code = """
results = [None] * 8
def work(k):
    for _ in range(3):
        results[k] = numbers()
threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
print(json.dumps(results))
"""
    assert program(code, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="2") == [expected] * 8


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_c31_children_of_a_process_that_has_worked(method: str, expected: Any, tmp_path: Path) -> None:
    """The parent has run threads of its own before; the children start from another thread, too."""
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    (tmp_path / "family.py").write_text(
        PRELUDE
        + f"""
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
def main():
    warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which is what is tried here
    results = [numbers()]
    def work():
        with ProcessPoolExecutor(2, mp_context=get_context({method!r})) as pool:
            results.extend(pool.map(numbers, [0, 0], timeout=60))
    if {method == "fork"}:
        work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(json.dumps(results))
if __name__ == "__main__":
    main()
"""
    )
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    command = [sys.executable, str(tmp_path / "family.py")]
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [expected] * (5 if method == "fork" else 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("busy", ["fits", "compiles"])
def test_forks_beside_a_thread_that_works(busy: str, expected: Any) -> None:
    """A lock that the thread holds at the fork, of Numba's compiler or of an import, would stop the child for ever."""
    code = f"""
import signal, time, warnings
from numba.core.compiler_lock import global_compiler_lock
warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which is what is tried here
def fit():
    mf.marginalise(x, x, budget=10, max_components=1, seed=0)
fit()
stop = threading.Event()
def fits():
    while not stop.is_set():
        fit()
def compiles():
    while not stop.is_set():
        with global_compiler_lock:
            time.sleep(0.05)
        time.sleep(0.001)
thread = threading.Thread(target={busy})
thread.start()
for _ in range(40 if {busy!r} == "fits" else 5):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with global_compiler_lock:
            pass
        fit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
print(json.dumps(numbers()))
"""
    assert program(code, NUMBA_NUM_THREADS="2") == expected


@pytest.mark.slow
def test_numba_in_joblib_in_xdist(tmp_path: Path) -> None:
    """Pools within pools: each worker of pytest-xdist runs joblib's workers, and each of these our threads."""
    pytest.importorskip("joblib")
    pytest.importorskip("xdist")
    (tmp_path / "helper.py").write_text(PRELUDE)
    (tmp_path / "test_nested.py").write_text(
        """
import helper, joblib, pytest
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_nested(backend):
    results = joblib.Parallel(n_jobs=2, backend=backend)(joblib.delayed(helper.numbers)() for _ in range(3))
    assert results == [helper.numbers()] * 3
"""
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    path = os.pathsep.join([str(ROOT), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**clean, "PYTHONPATH": path, "NUMBA_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_numbers_of_threads_are_obeyed(expected: Any) -> None:
    """NUMBA_NUM_THREADS counts our threads, OMP_NUM_THREADS Numba's where that is not set, and neither the bits."""
    code = """
own = numbers()
from maskerade_fast.backends.cpu import _parallel
ours = sum(thread.name.startswith("maskerade") for thread in threading.enumerate())
print(json.dumps([own, _parallel.n_threads(), ours]))
"""
    own, threads, ours = program(code, NUMBA_NUM_THREADS="3")
    assert (own, threads) == (expected, 3)
    assert 0 < ours <= 2
    if "NUMBA_NUM_THREADS" not in os.environ:
        assert program(code, OMP_NUM_THREADS="1")[0] == expected


def test_limits_of_threadpoolctl_are_given_back() -> None:
    """BLAS has one thread while we compute, and afterwards as many as its user had chosen, inside a limit too."""
    code = """
import threadpoolctl, scipy.linalg
def blas():
    return [p["num_threads"] for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
free = blas()
numbers()
assert blas() == free, (free, blas())
with threadpoolctl.threadpool_limits(1):
    inside = blas()
    numbers()
    assert blas() == inside
assert blas() == free
seen = []
mf.marginalise(x, np.sin(9 * x), budget=20, nodes=32, seed=0, device="cpu", callback=lambda row: seen.append(blas()))
print(json.dumps([free, inside, blas() == free]))
"""
    free, inside, after = program(code, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")
    assert after
    assert all(count == 1 for count in inside)
    assert free


def test_c32_no_kernel_assumes_away_nan() -> None:
    """Fast math at most without nnan and ninf; NaN and indefinite matrices are flagged by the compiled code itself."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "fastmath":
                flags = ast.literal_eval(node.value)
                assert isinstance(flags, set), path
                assert flags <= {"nsz", "arcp", "contract", "reassoc"}, path
    g = mf.GMMBatch.from_list([([1.0], [0.3], [0.1])] * 3)
    x, noise = np.arange(3.0)[:, None], np.array([[0.1], [np.nan], [0.1]])
    options: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "grad": False, "max_bytes": None, "basis": None}
    batch = (g.offsets, g.weights, g.means, g.scales)
    value, info = likelihood.log_likelihood(*batch, x, np.array([1.0, -1.0, 0.5]), noise, **options)[:2]
    assert info.tolist()[::2] == [0, 0]
    assert info[1] > 0
    assert value[1] == -np.inf
    value, info = likelihood.log_likelihood(*batch, np.zeros((3, 1)), np.ones(3), np.zeros((1, 1)), **options)[:2]
    assert (info == 2).all()
    assert (value == -np.inf).all()
    with pytest.raises(ValueError, match=r"y\[1\]: nan"):
        mf.log_likelihood(g, x, [1.0, np.nan, 0.5], 0.1)


def test_threads_stop_for_an_exception_in_one_of_them() -> None:
    """The first exception arrives, and no block is begun after it by a thread that has seen it."""
    calls: list[int] = []

    def kernel(start: int, stop: int) -> None:
        calls.append(start)
        if start == 3:
            raise ZeroDivisionError(start)

    with pytest.raises(ZeroDivisionError, match="3"):
        _parallel.parallel_for(kernel, 10_000, 1, threads=2)
    assert len(calls) < 10_000


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_outlasts_the_helpers(count: int) -> None:
    """Else they would be in BLAS while the caller changes its number of threads."""
    both, ended = threading.Barrier(2), threading.Event()

    def kernel(start: int, stop: int) -> None:
        both.wait(20.0)  # a block to each thread
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.6)
            ended.set()

    timers = [threading.Timer(0.15 * (k + 1), os.kill, (os.getpid(), signal.SIGINT)) for k in range(count)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        _parallel.parallel_for(kernel, 2, 1, threads=2)
    assert ended.is_set()


def test_a_helper_that_begins_after_a_failure_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose future is lost too, as by an interrupt right after it was handed over."""
    begun = []

    class Late:
        def submit(self, work: Any) -> None:
            begun.append(work)
            raise KeyboardInterrupt

    monkeypatch.setattr(_parallel, "_executor", lambda _: Late())
    kernels: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        _parallel.parallel_for(lambda start, stop: kernels.append(start), 4, 1, threads=2)
    begun[0]()
    assert kernels == []


def test_threads_are_kept_for_the_next_call() -> None:
    """A pool is made anew only for more threads than it has."""
    first = _parallel._executor(1)
    assert _parallel._executor(1) is first
    larger = _parallel._executor(_parallel._pool_size + 1)
    assert larger is not first
    assert _parallel._executor(1) is larger
