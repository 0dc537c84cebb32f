"""bench/gpu: rows call the backend as users' calls do, and variants of the kernels are what they say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast import backends

BENCH = Path(__file__).parents[2] / "bench"
pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="benchmarks are part of the source tree only")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, emulated: Any) -> Iterator[Any]:
    """Modules of bench/gpu by name, on the stand-in for cupy."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(emulated.cupy, "ElementwiseKernel", lambda *args: None, raising=False)
    yield lambda name: importlib.import_module(f"gpu.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "gpu"]:
        del sys.modules[name]


def noting(seen: list[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose positional arguments are kept."""

    def call(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return function(*args, **kwargs)

    return call


def kinds(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(type(a), a.dtype, a.shape) for a in arguments]


@pytest.mark.parametrize("regular", [False, True])
def test_likelihoods_are_called_as_users_call_them(
    gpu: Any, emulated: Any, monkeypatch: pytest.MonkeyPatch, regular: bool
) -> None:
    """CuPy's offsets, which no GMMBatch has, put a wait for the device into every timed call."""
    problems = gpu("problems")
    problem = problems.regression(260 if regular else 20, 3, 2, regular=regular)
    offsets, *arrays, X, y, noise = problem.door_arguments()
    assert type(offsets) is np.ndarray
    name = "toeplitz_log_likelihood" if regular else "log_likelihood"
    module, seen = backends.get_backend(X), list[Any]()
    door = getattr(module, name)
    monkeypatch.setattr(module, name, noting(seen, door))
    batch = mf.GMMBatch(offsets, *arrays).to("gpu")
    before = emulated.state.synchronised
    value = mf.log_likelihood(batch, X, y, problems.NOISE).value
    waits = emulated.state.synchronised - before
    assert kinds(seen[0]) == kinds((offsets, *arrays, X, y, noise))
    options = {"jitter": 0.0, "grad": False, "max_bytes": None} | ({} if regular else {"per_axis": False})
    before = emulated.state.synchronised
    own = door(offsets, *arrays, X, y, noise, **options)[0]
    assert emulated.state.synchronised - before <= (1 if regular else 0) <= waits
    assert (own == value).all()


def test_distances_are_called_as_users_call_them(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = gpu("problems").pairs(4, 3, 2, 1)
    arguments = pairs.flat(0)
    module, seen = backends.get_backend(arguments[1]), list[Any]()
    door = module.prepare_atoms
    monkeypatch.setattr(module, "prepare_atoms", noting(seen, door))
    offsets, weights, points = arguments
    batch = mf.GMMBatch(offsets, weights, points[:, :1], points[:, 1:])
    mf.energy_distance(batch, batch)
    assert kinds(seen[0][:3]) == kinds(arguments)


def test_copies_to_the_host_are_counted(gpu: Any, emulated: Any) -> None:
    """Of every row, all of them; only what needs the results to go on makes any."""
    rows = gpu("rows")
    for case in rows.all_cases(True):
        if case.sizes.get("N", 0) < 336:
            row = case.make(**case.sizes)
            before = emulated.state.synchronised
            with rows.copies_counted() as copies:
                row.ours()
            wanted = int("mixed" in case.name)  # the units of its coordinates and weights
            assert emulated.state.synchronised - before == copies[0] == wanted, case.name
    case = next(case for case in rows.all_cases(True) if case.name.startswith("K2+K3 N=336"))
    row = case.make(**case.sizes)
    before = emulated.state.synchronised
    with rows.copies_counted() as copies:
        row.ours()
    assert emulated.state.synchronised - before == copies[0] == 1  # which matrices failed


def every_variant(variants: Any) -> list[Any]:
    combined = (sweep.together(changes) for sweep in variants.SWEEPS for changes in sweep.combinations())
    return [*variants.VARIANTS, *combined]


def test_variants_name_what_there_is(gpu: Any) -> None:
    """Rows, constants of the backend and texts of the sources, each text once; afterwards all is as it was."""
    variants = gpu("variants")
    before = {name: dict(vars(module)) for name, module in sys.modules.items() if name.startswith(variants.BACKEND)}
    every = every_variant(variants)
    assert len({variants.label(variant) for variant in every}) == len(every) > 30
    for variant in every:
        variants.case_of(variant.case, False)
        with variants.applied(variant):
            folder = variants._loader.source_folder()
            for file, old, new in variant.texts:
                text = (folder / file).read_text()
                assert new in text
                assert old in new or old not in text
        assert variants.case_of(variant.case, True).name
    assert {name: dict(vars(sys.modules[name])) for name in before} == before


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"texts": [("gram.cu", "int", "long")]}, ValueError, "gram.cu has 'int' [0-9]+ times, expected once"),
        ({"texts": [("gram.cu", "nowhere", "")]}, ValueError, "gram.cu has 'nowhere' 0 times"),
        ({"constants": {"gram.NOT_THERE": 1}}, LookupError, "the backend has no gram.NOT_THERE"),
        ({"case": "K9"}, LookupError, "no row is called 'K9'"),
    ],
)
def test_variants_that_no_longer_fit(gpu: Any, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    variants = gpu("variants")
    variant = variants.Variant("a", variants.GRAM)._replace(**changes)
    with pytest.raises(error, match=message):  # noqa: PT012 - either of the two
        variants.case_of(variant.case, False)
        with variants.applied(variant):
            pass


class Untimed:
    """In place of a clock."""

    dry = True

    def compare(self, default: Any, variant: Any, longest: float) -> dict[str, Any]:
        default(), variant()
        return {"ratio_median": 0.5}

    def require(self, seconds: float) -> None:
        pass


def test_other_bits_are_a_failure(gpu: Any, emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they should be the same; else the row's tolerance decides."""
    compare, variants, rows = gpu("compare"), gpu("variants"), gpu("rows")
    results = {"default": 1.0, "variant": 1.0 + 1e-15}
    calls: list[str] = []

    def ours() -> Any:
        calls.append("variant" if variants.likelihood.TILE == 17 else "default")
        return [emulated.cupy.asarray([results[calls[-1]], np.nan])]

    row = rows.Row(ours, {}, lambda got: abs(float(got[0][0]) - 1.0), 1e-12, None)
    monkeypatch.setattr(compare, "made", lambda name, dry: (row, ours()))
    entry: dict[str, Any] = {}
    variant = variants.Variant("a", "b", {"likelihood.TILE": 17})
    with pytest.raises(ArithmeticError, match="b: a: other bits than the default's"):
        list(compare.compared(variant, Untimed(), entry))
    assert entry["ratio_median"] == 0.5
    assert calls == ["default", "variant", "default", "variant"]
    list(compare.compared(variant._replace(same_bits=False), Untimed(), entry))
    results["variant"] = 1.1
    with pytest.raises(ArithmeticError, match=r"error 0\.1, tolerance"):
        list(compare.compared(variant._replace(same_bits=False), Untimed(), entry))
    results["variant"] = 1.0
    list(compare.compared(variant, Untimed(), entry))
    assert entry["same_bits"] is True


def test_sweeps_try_the_likely_ones_first(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compare, variants = gpu("compare"), gpu("variants")
    ratios = {"a": 1.2, "b": 0.9, "c": 0.8}
    order: list[str] = []

    def compared(variant: Any, clock: Any, entry: dict[str, Any]) -> Iterator[None]:
        order.append(variant.name)
        if variant.name == "b, c":
            raise ArithmeticError("other bits")
        entry["ratio_median"] = float(np.prod([ratios[name] for name in variant.name.split(", ")]))
        yield

    monkeypatch.setattr(compare, "compared", compared)
    a, b, c = (variants.Variant(name) for name in "abc")
    entry: dict[str, Any] = {}
    with pytest.raises(ArithmeticError, match="other bits"):
        list(compare.swept(variants.Sweep("s", "case", [[a, b], [c]]), Untimed(), entry))
    assert order == ["c", "a", "b", "b, c", "a, c"]
    assert [one["name"] for one in entry["tried"]] == ["c", "b", "a, c", "a", "b, c"]


@pytest.mark.sweep
def test_variants_compute_the_same(gpu: Any, emulated: Any) -> None:
    """All of them, on the emulator: an array that is too small for one, say, would be overrun on a card."""
    variants, compare = gpu("variants"), gpu("compare")
    emulated.state.devices[0].multiprocessors = 1  # few blocks are already enough for the tall ones
    for variant in every_variant(variants):
        list(compare.compared(variant, Untimed(), {}))


@pytest.mark.sweep
def test_variants_compile(gpu: Any, cuda_compiler: Any) -> None:
    """For an H100, each kernel that a variant changes."""
    compiling, variants, compare = gpu("compiling"), gpu("variants"), gpu("compare")
    compare.chosen = lambda dry: (variants.VARIANTS, variants.SWEEPS)
    for walk in compiling.walks(True):
        number = compiling.number_in_text(walk.variant, True)
        if number < 0:
            continue
        found: list[Any] = []
        with compiling.noted(-1, []):
            made = walk.make()
        with compiling.as_variant(number, True):
            with compiling.noted(number, found):
                walk.call(made)
            for _, source, entry, defines in sorted(set(found)):
                code = variants._loader.expand(variants._loader.source_folder() / f"{source}.cu")
                macros = dict(defines) | {"MF_ONE_ENTRY": 1, f"MF_WITH_{entry}": 1}
                cuda_compiler.compile_kernels(code, {name: str(value) for name, value in macros.items()}, 90)


def test_commands_of_other_programs(gpu: Any) -> None:
    """The clocks stay as they are, and the memory checker sees each array's own allocation."""
    checks = gpu("checks")
    assert checks.ncu_command("ncu", "pairwise_f64")[1:3] == ["--clock-control", "none"]
    assert "regex:^(pairwise_f64)$" in checks.ncu_command("ncu", "pairwise_f64")
    assert checks.sanitizer_command("compute-sanitizer", "memcheck")[-1] == "--no-pool"
    every = {name for _, name in gpu("driver").all_kernels(BENCH.parent / "kernels")}
    assert {name for _, kernels in checks.PROFILED for name in kernels.split("|")} <= every
    assert {name for name, _ in checks.PROFILED} <= {case.name for case in gpu("rows").all_cases(False)}


def test_arrays_without_a_pool(gpu: Any, emulated: Any) -> None:
    cupy = emulated.cupy
    gpu("driver").without_pool()
    held = cupy.zeros(1000)
    assert cupy.get_default_memory_pool().used_bytes() == 0
    emulated.reset()
    held = cupy.zeros(1000)
    assert cupy.get_default_memory_pool().used_bytes() == 8192
    del held
