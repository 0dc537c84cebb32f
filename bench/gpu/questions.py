"""What only a card can answer: each question is a function that gives figures, none depends on another."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from maskerade_fast.backends.gpu import _blocked, _loader, likelihood

from . import baselines, problems
from .clock import Clock, OutOfTime
from .report import Report
from .rows import LIKELIHOOD, PEERS

UPPER = 1  # CUBLAS_FILL_MODE_UPPER, on row-major data the lower triangle


def ask_all(clock: Clock, report: Report, fatbin: Path | None) -> None:
    """Every question, each written down when answered."""
    questions: dict[str, Callable[[], dict[str, Any]]] = {
        "mma_against_fma": lambda: mma_against_fma(clock),
        "shuffle_against_shared": lambda: shuffle_against_shared(clock),
        "fatbin": lambda: load_fatbin(clock, fatbin),
        "potrf_batched": lambda: potrf_batched(clock),
        "library": lambda: library(clock),
    }
    for name, ask in questions.items():
        print(f"question {name}", flush=True)
        start = time.monotonic()
        try:
            clock.require(0.5 if clock.dry else 4.0)
            report.put("questions", **{name: ask()})
        except OutOfTime as stop:
            report.put("questions", **{name: {"left_out": str(stop)}})
        except Exception as error:  # one question's failure is not the others'
            report.put("questions", **{name: {"failed": f"{type(error).__name__}: {error}"[:500]}})
            report.failure(name, error)
        report.put("question_seconds", **{name: time.monotonic() - start})


def sizes(clock: Clock) -> dict[int, int]:
    """Points and batch of the four likelihood rows."""
    return {40: 3, 120: 2} if clock.dry else {144: 1000, 512: 256, 1503: 100, 10_000: 4}


def potrf_batched(clock: Clock) -> dict[str, Any]:
    """cuSOLVER's potrfBatched, and its potrf in a loop, on matrices in place: without CuPy's copies."""
    from cupy_backends.cuda.libs import cusolver  # type: ignore[import-not-found]

    handle = cupy.cuda.device.get_cusolver_handle()
    out: dict[str, Any] = {}
    for n, count in sizes(clock).items():
        clock.require(0.5 if clock.dry else 5.0)
        problem = problems.regression(n, count, 3)
        source = cupy.empty((count, n, n))
        for b in range(count):
            source[b : b + 1] = baselines.fused_gram(problem, b, b + 1)
        work = cupy.empty_like(source)
        pointers = cupy.asarray([work[b].data.ptr for b in range(count)], dtype=np.uint64)
        info = cupy.zeros(count, dtype=np.int32)
        n_buffer = cusolver.dpotrf_bufferSize(handle, UPPER, n, work.data.ptr, n)
        buffer = cupy.empty(max(1, n_buffer))

        def restore(work: Any = work, source: Any = source) -> None:
            work[...] = source

        def batched(n: int = n, count: int = count, pointers: Any = pointers, info: Any = info) -> None:
            cusolver.dpotrfBatched(handle, UPPER, n, pointers.data.ptr, n, info.data.ptr, count)

        def one_by_one(n: int = n, work: Any = work, info: Any = info, buffer: Any = buffer) -> None:
            for b in range(len(work)):
                args = (work[b].data.ptr, n, buffer.data.ptr, buffer.size, info[b : b + 1].data.ptr)
                cusolver.dpotrf(handle, UPPER, n, *args)

        out[f"N={n}, B={count}"] = {
            "batched": clock.measure(batched, restore, PEERS),
            "one_by_one": clock.measure(one_by_one, restore, PEERS),
            "failed_matrices": int((info != 0).sum()),
        }
        del source, work, restore, batched, one_by_one
        cupy.get_default_memory_pool().free_all_blocks()
    return out


def library(clock: Clock) -> dict[str, Any]:
    """What the large likelihoods stand on: rates of cuBLAS's product and of a copy, and the host's cost of a launch.

    And whether the batched product gives a matrix the same bits beside fewer others.
    """
    n = 64 if clock.dry else 8192
    a, b, c = (cupy.full((n, n), value) for value in (0.5, 0.25, 0.0))
    product = clock.measure(functools.partial(cupy.matmul, a, b, out=c))
    copied = clock.measure(functools.partial(cupy.copyto, c, a))
    out: dict[str, Any] = {
        f"product of order {n}": product | {"flops_per_second": 2e3 * n**3 / product["call_ms"]},
        f"copy of {a.nbytes} bytes": copied | {"bytes_per_second": 2e3 * a.nbytes / copied["call_ms"]},
    }
    del a, b, c
    rng = np.random.default_rng(7)
    shapes = [(40, 8, 8, 5)] if clock.dry else [(1024, 512, 512, 100), (1408, 64, 64, 100), (9500, 512, 512, 4)]
    for rows, inner, columns, count in shapes:
        left, right = (cupy.asarray(rng.normal(size=(count, *shape))) for shape in ((rows, inner), (inner, columns)))
        figures = clock.measure(functools.partial(cupy.matmul, left, right))
        whole = cupy.matmul(left, right)
        same = [bool((cupy.matmul(left[:k], right[:k]) == whole[:k]).all()) for k in (1, 2, count - 1)]
        figures["flops_per_second"] = 2e3 * rows * inner * columns * count / figures["call_ms"]
        out[f"{count} products of {rows}x{inner}x{columns}"] = figures | {"same_bits_beside_fewer": all(same)}
        del left, right, whole, figures
    out["launch"] = {"host_ms": launch_cost(10 if clock.dry else 2000)}
    return out


def launch_cost(launches: int) -> float:
    """Milliseconds of the host's time for one launch by the backend, the kernel being shorter than that."""
    source = _loader.expand(Path(__file__).with_name("questions.cu"))
    raw = cupy.RawModule(code=source, options=("-std=c++17",)).get_function("wait_f64")
    kernel, args = _loader.Kernel("wait_f64", raw), (cupy.ones(1), np.int32(1))
    kernel((1,), (1,), args)
    cupy.cuda.Device().synchronize()
    start = time.perf_counter()
    for _ in range(launches):
        kernel((1,), (1,), args)
    seconds = time.perf_counter() - start
    cupy.cuda.Device().synchronize()
    return 1e3 * seconds / launches


@contextmanager
def multiply_adds() -> Iterator[None]:
    """The backend takes the card for one whose tensor instructions are slower: MF_NO_MMA and its blocks."""
    chosen, asked = vars(_blocked)["tile_defines"], []

    def other() -> dict[str, int]:
        asked.append(1)
        return {"MF_NO_MMA": 1}

    modules = (likelihood, _blocked)
    for module in modules:
        module.tile_defines = other  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in modules:
            module.tile_defines = chosen  # type: ignore[attr-defined]
    if not asked:
        raise RuntimeError("the backend chooses tensor instructions in another way now")


def mma_against_fma(clock: Clock) -> dict[str, Any]:
    """Likelihoods and gradients with tensor instructions and, by MF_NO_MMA, with multiply-adds."""
    out: dict[str, Any] = {}
    for n, count in list(sizes(clock).items())[:3]:
        for grad in (False, True) if n == min(sizes(clock)) else (False,):
            problem = problems.regression(n, count, 3)
            call = functools.partial(likelihood.log_likelihood, *problem.door_arguments(), grad=grad, **LIKELIHOOD)
            with_mma, first = clock.measure(call), cupy.asnumpy(call()[0])
            with multiply_adds():
                without, second = clock.measure(call), cupy.asnumpy(call()[0])
            out[f"N={n}, B={count}{', gradient' if grad else ''}"] = {
                "mma": with_mma,
                "fma": without,
                "ratio_fma_to_mma": without["call_ms"] / with_mma["call_ms"],
                "largest_relative_difference": float(np.max(np.abs(first / second - 1))),
            }
    return out


def shuffle_against_shared(clock: Clock) -> dict[str, Any]:
    """The factor of a 16 x 16 tile by one warp, columns passed round by shuffles or through shared memory."""
    source = _loader.expand(Path(__file__).with_name("questions.cu"))
    module = cupy.RawModule(code=source, options=("-std=c++17",))
    limits = _loader.device_limits()
    blocks, rounds = (2, 2) if clock.dry else (limits.multiprocessors, 1000)
    factor = np.random.default_rng(6).normal(size=(16, 16))
    matrix = factor @ factor.T + 16 * np.eye(16)
    given, expected = cupy.asarray(matrix), np.linalg.cholesky(matrix)
    out: dict[str, Any] = {"blocks": blocks, "rounds": rounds}
    for way in ("shuffle", "memory"):
        kernel = module.get_function(f"factor_by_{way}_f64")
        result = cupy.empty((blocks, 16, 16))
        call = functools.partial(kernel, (blocks,), (32,), (given, result, np.int32(rounds)))
        out[way] = clock.measure(call)
        out[way]["error"] = float(np.max(np.abs(cupy.asnumpy(result) - expected)) / np.max(expected))
    out["ratio_memory_to_shuffle"] = out["memory"]["call_ms"] / out["shuffle"]["call_ms"]
    return out


def load_fatbin(clock: Clock, given: Path | None) -> dict[str, Any]:
    """Whether RawModule(path=) takes a fatbin: one that nvcc makes here of questions.cu, or `given`, made elsewhere.

    A given file must hold `wait_f64`; bench/README.md has nvcc's command.
    """
    nvcc = shutil.which("nvcc")
    capability = _loader.device_limits().capability
    with tempfile.TemporaryDirectory() as folder:
        path = given
        if path is None:
            if nvcc is None:
                return {"skipped": "no nvcc here: make a fatbin elsewhere and give it by --fatbin"}
            source, path = Path(folder) / "questions.cu", Path(folder) / "questions.fatbin"
            source.write_text(_loader.expand(Path(__file__).with_name("questions.cu")))
            target = f"arch=compute_{capability},code=sm_{capability}"
            command = [nvcc, "-std=c++17", "-fatbin", "-gencode", target, "-o", str(path), str(source)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=max(1.0, clock.left() - 5))
        try:
            module = cupy.RawModule(path=str(path))
            module.compile()
        except cupy.cuda.driver.CUDADriverError as error:
            return {"loads": False, "error": str(error)}
        state = cupy.ones(1)
        module.get_function("wait_f64")((1,), (1,), (state, np.int32(1)))
        return {"loads": True, "runs": bool(state.get()[0] == 1.0), "nvcc": nvcc if given is None else None}
