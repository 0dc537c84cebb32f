"""The rows of the table: K1 to K5 at the sizes that were designed for, most telling first."""

from __future__ import annotations

import functools
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import cupy
import numpy as np

from maskerade_fast.backends import gpu, is_cupy, to_host
from maskerade_fast.backends.gpu.distances import pairwise_distance, pairwise_distance_vjp, prepare_atoms
from maskerade_fast.backends.gpu.gram import gram
from maskerade_fast.backends.gpu.hyperkernel import hyperkernel_matvec
from maskerade_fast.backends.gpu.likelihood import log_likelihood
from maskerade_fast.backends.gpu.mixture_prediction import pair_moments
from maskerade_fast.backends.gpu.toeplitz import toeplitz_log_likelihood

from . import peers, problems, reference
from .card import Work, floor
from .clock import Clock, Item, OutOfTime
from .sass import counts

PEERS = 1.5  # seconds that the repeats of another's call may take
MOST_HASHED = 2**20  # numbers of one array
LIKELIHOOD: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "max_bytes": None}


class Row(NamedTuple):
    """One problem: our call, the others', and what they are held to. Made when its turn comes: it owns memory."""

    ours: Callable[[], Any]
    others: dict[str, Callable[[], Any]]
    error: Callable[[Any], float]
    tolerance: float
    work: Work | None


class Case(NamedTuple):
    name: str
    kernels: str
    sizes: dict[str, int]
    make: Callable[..., Row]
    seconds: float
    """What it takes on an H100 whose kernels are compiled, and some more: a row that does not fit any more is left
    out, and the report says so."""


def all_cases(dry: bool) -> list[Case]:
    """Cases in the order of their worth; `dry` has every kind at sizes for the emulator."""
    if dry:
        n_small, n_middle, n_large, many = 40, 120, 336, 12
        batches, h, points = {n_small: 3, n_middle: 2, n_large: 2}, 10, 3
    else:
        n_small, n_middle, n_large, many = 144, 512, 1503, 1000
        batches, h, points = {n_small: 1000, n_middle: 256, n_large: 100}, 300, 150
    huge = 20 if dry else 10_000

    def distance_case(count: int, axes: int, seconds: float) -> Case:
        return Case(f"K1 {count}x{count}, D={axes}", "K1", {"B": count, "n": 5, "D": axes}, distance_row, seconds)

    small = {"N": n_small, "B": batches[n_small], "Q": 3}
    side = 20 if dry else 100_000
    return [
        likelihood_case(n_small, batches[n_small], 5),
        distance_case(many, 1, 2),
        gradient_case(n_small, batches[n_small], 5),
        Case(f"K5 h={h}, n*={points}", "K5", {"h": h, "M": points}, moments_row, 2),
        likelihood_case(n_middle, batches[n_middle], 4),
        gradient_case(n_middle, batches[n_middle], 8),
        distance_case(many, 5, 2),
        likelihood_case(n_large, batches[n_large], 10),
        gradient_case(*((416, 1) if dry else (1000, 64)), 10),
        Case(f"K2 N={n_small}, B={batches[n_small]}", "K2", small, gram_row, 2),
        Case(f"K1 gradient {many}x{many}, D=1", "K1", {"B": many, "n": 5, "D": 1}, distance_gradient_row, 4),
        Case(f"K1 mixed {many}x{many}, D=1", "K1", {"B": many, "n": 5, "D": 1}, mixed_row, 2),
        distance_case(huge, 1, 5),
        distance_case(huge, 5, 8),
        Case(
            f"K2+K3 Toeplitz N={n_large}, B={batches[n_large]}",
            *("K2 K3", {"N": n_large, "B": batches[n_large], "Q": 3}, toeplitz_row, 6),
        ),
        Case(f"K1 product {side}x{side}, D=1", "K1", {"B": side, "n": 5, "D": 1}, product_row, 15),
        likelihood_case(*((170, 1) if dry else (10_000, 4)), 20),
    ]


def likelihood_case(n: int, count: int, seconds: float) -> Case:
    return Case(f"K2+K3 N={n}, B={count}", "K2 K3", {"N": n, "B": count, "Q": 3}, likelihood_row, seconds)


def gradient_case(n: int, count: int, seconds: float) -> Case:
    return Case(f"K4 N={n}, B={count}", "K2 K3 K4", {"N": n, "B": count, "Q": 3}, gradient_row, seconds)


def items(clock: Clock, card: dict[str, Any]) -> list[Item]:
    """Every row, to be measured."""
    return [
        Item(case.name, case.seconds, functools.partial(measured, case, clock, card)) for case in all_cases(clock.dry)
    ]


def call_once(case: Case) -> None:
    """Make our call and those of peers whose kernels CuPy compiles; their errors appear where they are measured."""
    row = case.make(**case.sizes)
    row.ours()
    for name, call in row.others.items():
        if name != "gpytorch":
            with suppress(Exception):
                call()


def measured(case: Case, clock: Clock, card: dict[str, Any], entry: dict[str, Any]) -> Iterator[None]:
    """Fill `entry`, with a pause after each part that is worth writing down."""
    entry.update(kernels=case.kernels, sizes=case.sizes, dtype="float64")
    row = case.make(**case.sizes)
    start = time.perf_counter()
    with copies_counted() as copies:
        result = row.ours()
    cupy.cuda.Device().synchronize()
    entry["first_call_seconds"] = time.perf_counter() - start  # compiles the kernels or finds them on disk
    entry["error"] = row.error(result)
    entry["bits"] = digest(result)
    del result
    entry["tolerance"] = row.tolerance
    entry["within_tolerance"] = bool(entry["error"] <= row.tolerance)  # false for NaN
    yield
    if not entry["within_tolerance"]:
        raise ArithmeticError(f"error {entry['error']:.3g}, tolerance {row.tolerance:.0e}")
    ours = entry["ours"] = clock.measure(row.ours)
    ours["copies_to_host"] = copies[0]
    if row.work is not None:
        estimate = floor(card, row.work)
        entry.update(estimate)
        busy = ours["device_ms"] or ours["call_ms"]
        if estimate["floor_estimate_ms"] is not None:
            entry["share_of_floor"] = estimate["floor_estimate_ms"] / busy
    yield
    ours["kernels"] = clock.kernels(row.ours)
    ours["kernels_ms"] = sum(kernel["total_ms"] for kernel in ours["kernels"].values())
    yield
    for name, call in row.others.items():
        try:
            clock.require(1.0)
            entry[name] = {"error": row.error(call())}
            entry[name].update(clock.measure(call, longest=PEERS))
            entry[f"ratio_{name}"] = entry[name]["call_ms"] / ours["call_ms"]
            if entry[name]["device_ms"] and ours["device_ms"]:
                entry[f"ratio_device_{name}"] = entry[name]["device_ms"] / ours["device_ms"]
        except OutOfTime as stop:
            entry[name], entry["missing"] = {"left_out": str(stop)}, "others' times"
        except Exception as error:  # a peer that fails, for want of memory say, is a finding
            entry[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
        yield


@contextmanager
def copies_counted() -> Iterator[list[int]]:
    """The list's entry counts the arrays that the backend copies to the host; each makes the host wait."""
    count = [0]
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{gpu.__name__}.")]
    places = [module for module in modules if hasattr(module, "to_host")]

    def counted(array: Any) -> Any:
        count[0] += is_cupy(array)
        return to_host(array)

    for module in places:
        module.to_host = counted  # type: ignore[attr-defined]
    try:
        yield count
    finally:
        for module in places:
            module.to_host = to_host  # type: ignore[attr-defined]


def arrays_of(result: Any) -> list[Any]:
    """All arrays of a call's result."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in arrays_of(part)]
    return [] if result is None else [result]


def digest(result: Any) -> str:
    """What tells the bits of a result from others: on another card they are to be the same. Of large ones a part."""
    hashed = hashlib.sha256()
    for array in arrays_of(result):
        hashed.update(cupy.asnumpy(array.ravel()[:MOST_HASHED]).tobytes())
    return hashed.hexdigest()[:16]


# ---- what the rows are made of ----


def pairs_work(n_pairs: float, n_axes: int, size: float) -> Work:
    return Work(n_pairs, *counts("K1", n_axes), bytes=8 * size)


def distance_row(B: int, n: int, D: int) -> Row:
    problem = problems.pairs(B, B, n, D)
    atoms = [prepare_atoms(*problem.flat(side)) for side in (0, 1)]
    own = tuple(peers.self_terms(w, p) for w, p in zip(problem.weights, problem.points, strict=True))
    others = {
        "plain_cupy": lambda: peers.plain_distance(problem, own),
        "fused": lambda: peers.fused_distance(problem, own),
    }
    error = functools.partial(reference.distance_error, problem)
    return Row(lambda: pairwise_distance(*atoms), others, error, 1e-12, pairs_work((B * n) ** 2, D, B * B))


def mixed_row(B: int, n: int, D: int) -> Row:
    problem = problems.pairs(B, B, n, D)
    atoms = [prepare_atoms(*problem.flat(side)) for side in (0, 1)]
    error = functools.partial(reference.distance_error, problem)
    return Row(lambda: pairwise_distance(*atoms, precision="mixed"), {}, error, 1e-6, None)


def distance_gradient_row(B: int, n: int, D: int) -> Row:
    problem = problems.pairs(B, B, n, D)
    a, b = (prepare_atoms(*problem.flat(side)) for side in (0, 1))
    cotangent = cupy.asarray(np.random.default_rng(4).normal(size=(B, B)))
    error = functools.partial(reference.distance_gradient_error, problem, cotangent)
    return Row(lambda: pairwise_distance_vjp(a, b, cotangent), {}, error, 1e-9, None)


def product_row(B: int, n: int, D: int) -> Row:
    problem = problems.pairs(B, B, n, D)
    a, b = (prepare_atoms(*problem.flat(side)) for side in (0, 1))
    vectors = cupy.asarray(np.random.default_rng(5).normal(size=(B, 1)))
    settings: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 1.0}

    def error(got: Any) -> float:
        """By distances, which rows of their own check."""
        some = problems.Pairs(*(tuple(x[:4] for x in side) for side in problem))
        distances = cupy.asnumpy(pairwise_distance(prepare_atoms(*some.flat(0)), b))
        terms = np.exp(-distances) * cupy.asnumpy(vectors)[:, 0]
        return reference.relative(got[:4, 0], terms.sum(1), np.abs(terms).sum(1))

    work = pairs_work((B * n) ** 2, D, 0)
    return Row(lambda: hyperkernel_matvec(a, b, vectors, **settings), {}, error, 1e-12, work)


def gram_work(N: int, B: int, Q: int) -> float:
    return 0.5 * N * (N + 1) * B * Q


def gram_row(N: int, B: int, Q: int) -> Row:
    problem = problems.regression(N, B, Q)
    offsets, weights, means, scales, X, _, noise = problem.backend_arguments()
    call = functools.partial(gram, offsets, weights, means, scales, X, None, noise, per_axis=False)
    others = {
        "plain_cupy": lambda: peers.plain_gram(problem, 0, B),
        "fused": lambda: peers.fused_gram(problem, 0, B),
    }
    work = Work(gram_work(N, B, Q), *counts("K2"), bytes=8 * B * N * N)
    return Row(call, others, functools.partial(reference.gram_error, problem), 1e-12, work)


def likelihood_terms(problem: problems.Regression, count: int) -> Callable[[], list[list[float]]]:
    """The oracle's terms of the first mixtures, computed at most once: seconds where N is large."""
    return functools.cache(lambda: [reference.likelihood_terms(problem, b) for b in range(min(count, len(problem.w)))])


def likelihood_row(N: int, B: int, Q: int) -> Row:
    problem = problems.regression(N, B, Q)
    call = functools.partial(log_likelihood, *problem.backend_arguments(), grad=False, **LIKELIHOOD)
    others: dict[str, Callable[[], Any]] = {
        "plain_cupy": lambda: peers.plain_likelihood(problem),
        "fused": lambda: peers.fused_likelihood(problem),
    }
    if N <= 600 and peers.has_gpytorch():
        others["gpytorch"] = peers.gpytorch_likelihood(problem, grad=False)

    terms = likelihood_terms(problem, 1 if N > 1000 else 3)

    def error(got: Any) -> float:
        return reference.likelihood_error(got[0] if isinstance(got, tuple) else got, terms())

    work = Work(gram_work(N, B, Q), *counts("K2"), multiply_adds=B * N**3 / 6)
    return Row(call, others, error, 1e-12, work)


def toeplitz_row(N: int, B: int, Q: int) -> Row:
    """On a regular grid, against others that make and factor the whole matrix; it has no floor."""
    problem = problems.regression(N, B, Q, regular=True)
    options: dict[str, Any] = {"jitter": 0.0, "grad": False, "max_bytes": None}
    call = functools.partial(toeplitz_log_likelihood, *problem.backend_arguments(), **options)
    terms = likelihood_terms(problem, 1)

    def error(got: Any) -> float:
        return reference.likelihood_error(got[0] if isinstance(got, tuple) else got, terms())

    return Row(call, {"plain_cupy": lambda: peers.plain_likelihood(problem)}, error, 1e-12, None)


def gradient_row(N: int, B: int, Q: int) -> Row:
    problem = problems.regression(N, B, Q)
    call = functools.partial(log_likelihood, *problem.backend_arguments(), grad=True, **LIKELIHOOD)
    others: dict[str, Callable[[], Any]] = {
        "plain_cupy": lambda: peers.plain_gradient(problem),
        "fused": lambda: peers.fused_gradient(problem),
    }
    if peers.has_gpytorch():
        others["gpytorch"] = peers.gpytorch_likelihood(problem, grad=True)
    terms = likelihood_terms(problem, 3)

    def error(got: Any) -> float:
        if isinstance(got, tuple):
            got = got[3]
        if isinstance(got, list):
            return reference.likelihood_gradient_error(problem, got)
        return reference.likelihood_error(got, terms())

    # the matrices, their factors and inverses, and a second pass over the pairs
    fp64, slots = (sum(both) for both in zip(counts("K2"), counts("K4"), strict=True))
    work = Work(gram_work(N, B, Q), fp64, slots, multiply_adds=B * N**3 / 2)
    return Row(call, others, error, 1e-9, work)


def moments_row(h: int, M: int) -> Row:
    problem = problems.mixture(h, M)
    others = {
        "plain_cupy": lambda: peers.plain_moments(problem),
        "fused": lambda: peers.fused_moments(problem),
    }
    expected = functools.cache(functools.partial(reference.moments_of, problem))
    work = Work(0.5 * h * (h + 1) * M, *counts("K5"))
    return Row(
        lambda: pair_moments(*problem),
        others,
        lambda got: reference.moments_error(problem, got, expected()),
        1e-12,
        work,
    )
