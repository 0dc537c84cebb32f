"""The emulator reports what a card may hide, and computes what a card computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulate
import numpy as np
import pytest
import sanitize
from broken_rules import kernel, line_of
from emulate import ORDERS
from gpu_calls import EVERY_ORDER

Replay = Callable[..., str | None]


@pytest.fixture
def replay(emulated: Any, tmp_path: Path) -> Replay:
    """``replay(mode, options)``: what `sanitize.replay` says of the launches of the test so far."""
    emulated.state.record(tmp_path)
    return lambda *arguments: sanitize.replay(emulated.state.recorded, *arguments)


def skip(mark: str, order: str = "forward") -> Any:
    """Options that leave out the barrier of that mark."""
    return emulate.Options(ORDERS[order], ("test.cu", line_of(mark)))


# ---- barriers ----


def shift(cupy: Any) -> Any:
    out = cupy.empty(64)
    kernel("shift")((1,), (64,), (cupy.arange(64.0), out))
    return cupy.asnumpy(out)


@EVERY_ORDER
def test_a_barrier_holds_in_every_order(cupy: Any) -> None:
    np.testing.assert_array_equal(shift(cupy), [0, *range(63)])


@pytest.mark.parametrize("order", ["reverse", "shuffled"])
def test_a_missing_barrier_shows_in_another_order(cupy: Any, emulated: Any, order: str) -> None:
    emulated.state.options = skip("SHIFT")
    np.testing.assert_array_equal(shift(cupy), [0, *range(63)])
    emulated.state.options = skip("SHIFT", order)
    assert np.isnan(shift(cupy)).any()


def test_a_replay_compares_bits(cupy: Any, replay: Replay) -> None:
    shift(cupy)
    assert replay("replay") is None
    assert replay("replay", skip("SHIFT")) is None
    report = replay("replay", skip("SHIFT", "reverse"))
    assert "shift: other bits than in the recorded launch" in str(report)


@pytest.mark.parametrize("mark", ["FIRST", "SECOND"])
def test_a_needless_barrier_is_missed_by_nothing(cupy: Any, replay: Replay, mark: str) -> None:
    kernel("twice")((1,), (64,), (cupy.arange(64.0), cupy.empty(64)))
    for mode, order in [("replay", "forward"), ("replay", "reverse"), ("replay", "shuffled"), ("tsan", "forward")]:
        assert replay(mode, skip(mark, order)) is None


def test_a_kernel_without_end_is_a_report(cupy: Any, replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel("poll")._record((1,), (32,), (cupy.empty(1),), 0, 1000)
    monkeypatch.setitem(sanitize._SECONDS, "replay", 0.5)
    assert replay("replay") == "no end after 0.5 s"


def test_thread_sanitizer_finds_a_missing_barrier(cupy: Any, replay: Replay) -> None:
    shift(cupy)
    assert replay("tsan") is None
    report = replay("tsan", skip("SHIFT"))
    assert report is not None
    assert "data race" in report
    assert f"test.cu:{line_of('SHIFT') + 1}" in report


def test_thread_sanitizer_knows_that_shuffles_order_no_memory(cupy: Any, replay: Replay) -> None:
    kernel("shuffled_memory")((1,), (32,), (cupy.empty(32),))
    assert replay("tsan") is None
    assert "data race" in (replay("tsan", skip("MEMORY")) or "")


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_thread_sanitizer_sees_two_blocks_on_one_address(cupy: Any, replay: Replay, n_blocks: int) -> None:
    out = cupy.empty(1)
    for _ in range(2):  # launches follow one another
        kernel("blocks")((n_blocks,), (32,), (out,))
    assert float(out[0]) == 1.0
    report = replay("tsan")
    assert report is None if n_blocks == 1 else "data race" in str(report)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("diverge", r"threads wait at different barriers: test\.cu:(\d+) and test\.cu:(?!\1)"),
        ("leave", r"deadlock: 31 of 32 threads wait at test\.cu:\d+, 1 have returned"),
        ("leave_warp", "names lane 3, which has returned"),
        ("two_places", r"lanes of a warp wait at different places: test\.cu:(\d+) and test\.cu:(?!\1)"),
        ("own_mask", "lane (16|24) is not in its own mask"),
        ("stray", "shuffle from lane 9, outside the mask"),
        ("large", "static shared memory of 49160 bytes"),
    ],
)
def test_kernels_that_break_a_rule(cupy: Any, name: str, message: str) -> None:
    with pytest.raises(emulate.LaunchError, match=message):
        kernel(name)((1,), (32,), (cupy.empty(32),))


# ---- shared memory ----


def test_shared_memory_starts_as_nan(cupy: Any) -> None:
    out = cupy.zeros(32)
    kernel("fresh")((1,), (32,), (out,))
    assert np.isnan(cupy.asnumpy(out)).all()


@pytest.mark.parametrize(("place", "reported"), [(31, False), (32, True), (-1, True)])
def test_address_sanitizer_sees_a_read_outside_shared_memory(
    cupy: Any, replay: Replay, place: int, reported: bool
) -> None:
    args = (cupy.empty(32), np.int32(place), np.int32(0))
    kernel("reach")._record((1,), (32,), args, 0, 1000)  # not launched: it would fail there
    report = replay("asan")
    assert ("heap-buffer-overflow" in str(report)) == reported, report


@pytest.mark.parametrize(("n", "reported"), [(100, False), (101, True)])
def test_address_sanitizer_sees_the_ends_of_arrays(cupy: Any, replay: Replay, n: int, reported: bool) -> None:
    kernel("indices")._record((1,), (32,), (cupy.empty(100), np.int64(n)), 0, 0)  # not launched: it would write there
    report = replay("asan")
    assert ("heap-buffer-overflow" in str(report)) == reported, report


def test_too_few_dynamic_bytes(cupy: Any, replay: Replay) -> None:
    out = cupy.empty(1)
    kernel("dynamic")((1,), (32,), (out, np.int32(50)), shared_mem=400)
    assert float(out[0]) == 49.0
    with pytest.raises(emulate.LaunchError, match="past the end of dynamic shared memory"):
        kernel("dynamic")((1,), (32,), (out, np.int32(50)), shared_mem=392)
    assert "heap-buffer-overflow" in str(replay("asan"))


def test_a_block_may_have_more_than_48_kb_only_if_told_so(cupy: Any, emulated: Any) -> None:
    out = cupy.empty(1)
    function = kernel("dynamic")
    args = (out, np.int32(7000))
    with pytest.raises(emulated.CUDADriverError, match="may not have 56000 bytes"):
        function((1,), (32,), args, shared_mem=56000)
    function.max_dynamic_shared_size_bytes = 56000
    function((1,), (32,), args, shared_mem=56000)
    assert float(out[0]) == 6999.0
    emulated.state.devices[0].shared_bytes = 50000
    with pytest.raises(emulate.LaunchError, match="over the limit of 50000"):
        function((1,), (32,), args, shared_mem=56000)
    with pytest.raises(emulated.CUDADriverError):
        function.max_dynamic_shared_size_bytes = 56000


# ---- what warps compute ----


@EVERY_ORDER
def test_mma_is_a_matrix_product(cupy: Any, rng: np.random.Generator) -> None:
    a, b, c = rng.normal(size=(8, 4)), rng.normal(size=(4, 8)), rng.normal(size=(8, 8))
    out = cupy.asarray(c)
    kernel("product")((1,), (32,), (cupy.asarray(a), cupy.asarray(b), out))
    np.testing.assert_allclose(cupy.asnumpy(out), c + a @ b, rtol=0, atol=4e-15)


def test_cards_before_80_have_no_mma(cupy: Any) -> None:
    out = cupy.zeros((8, 8))
    kernel("product", arch=75)((1,), (32,), (cupy.zeros((8, 4)), cupy.zeros((4, 8)), out))
    assert (cupy.asnumpy(out) == -1.0).all()


@EVERY_ORDER
def test_shuffles_and_votes(cupy: Any, rng: np.random.Generator) -> None:
    x = rng.permutation(32).astype(float)
    l = np.arange(32)
    out = cupy.empty((9, 32))
    kernel("shuffles")((1,), (32,), (cupy.asarray(x), out))
    votes = sum(2.0**k for k in range(0, 32, 3))
    expected = [
        np.full(32, x[5]),
        x[l ^ 3],
        np.where(l < 2, x, x[l - 2]),
        np.where(l > 29, x, x[(l + 2) % 32]),
        x[l // 8 * 8 + 1],
        np.where(l % 8 > 4, x, x[(l + 3) % 32]),
        np.full(32, votes),
        x[l ^ 1],
        np.where(l < 8, x[l ^ 4], 10.0),
    ]
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


# ---- launches ----


@EVERY_ORDER
def test_indices(cupy: Any) -> None:
    out = cupy.empty(300)
    kernel("indices")((2,), (96,), (out, np.int64(300)))
    k = np.arange(300) % 192
    expected = 1e6 * (k // 96) + 1e3 * (k % 96) + k % 96 // 32 + 0.01 * (k % 32)
    np.testing.assert_array_equal(cupy.asnumpy(out), expected)


ARGUMENTS: list[Any] = [
    np.zeros(1),
    np.zeros(1, np.float32),
    np.zeros(1, np.int32),
    np.zeros(1, np.int64),
    np.float64(1),
    np.float32(2),
    np.int32(3),
    np.int64(4),
    np.uint32(5),
    np.zeros(1, np.uint8),
]


def launch_types(cupy: Any, arguments: list[Any]) -> float:
    passed = tuple(cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments)
    kernel("types")((1,), (1,), passed)
    return float(passed[1][0])


def test_arguments_of_every_type(cupy: Any) -> None:
    assert launch_types(cupy, ARGUMENTS) == 15.0


@pytest.mark.parametrize(
    ("k", "wrong"),
    [
        (0, np.zeros(1, np.float32)),
        (2, np.zeros(1, np.int64)),
        (4, np.float32(1)),
        (5, np.float64(1)),
        (6, np.int64(3)),
        (7, np.int32(4)),
        (7, np.float64(4)),
        (6, 3),
        (8, np.int32(5)),
    ],
)
def test_an_argument_of_the_wrong_type(cupy: Any, k: int, wrong: Any) -> None:
    with pytest.raises(emulate.LaunchError, match=f"argument {k} of types"):
        launch_types(cupy, [*ARGUMENTS[:k], wrong, *ARGUMENTS[k + 1 :]])


def test_the_library_checks_sizes_itself(cupy: Any) -> None:
    """Beneath the stand-in: bytes against the parameter's size."""
    library = kernel("indices").module._library()
    address = emulate.ctypes.c_void_p(0)
    for args, message in (
        ([address, b"1234"], "argument 1 has 4 bytes, expected 8"),
        ([address], "1 arguments, expected 2"),
    ):
        with pytest.raises(emulate.LaunchError, match=message):
            library.launch("indices", (1,), (32,), args)
    with pytest.raises(emulate.LaunchError, match="no kernel 'absent'"):
        library.launch("absent", (1,), (32,), [])


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ((0,), (32,), "grid of"),
        ((1, 65536), (32,), "grid of"),
        ((1, 1, 65536), (32,), "grid of"),
        ((1,), (0,), "block of"),
        ((1,), (1025,), "block of"),
    ],
)
def test_launch_limits(cupy: Any, grid: tuple[int, ...], block: tuple[int, ...], message: str) -> None:
    with pytest.raises(emulate.LaunchError, match=message):
        kernel("indices")(grid, block, (cupy.empty(1), np.int64(1)))


def test_launch_bounds(cupy: Any) -> None:
    with pytest.raises(emulate.LaunchError, match="launch bounds of 64"):
        kernel("shift")((1,), (65,), (cupy.zeros(65), cupy.empty(65)))


def test_a_source_that_does_not_compile(cupy: Any, emulated: Any) -> None:
    module = cupy.RawModule(code='#line 7 "broken.cu"\nextern "C" __global__ void f(double* x) { x = 1; }')
    with pytest.raises(emulated.CompileException, match=r"broken\.cu:7"):
        module.get_function("f")


def test_a_missing_compiler_is_an_error(emulated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    emulate._compiler.cache_clear()
    try:
        with pytest.raises(emulate.CompileError, match=r"needs g\+\+"):
            emulate.compile_source("// never compiled", {}, "plain")
    finally:
        emulate._compiler.cache_clear()


# ---- several processes ----


def test_two_processes_may_compile_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one finds what it made, after the other has cleared up."""
    run, linked = emulate._run, list[Path]()
    monkeypatch.setattr(emulate, "CACHE", tmp_path)

    def with_another(command: list[str], *rest: Any) -> Any:
        out = run(command, *rest)
        if "-shared" in command and not linked:
            linked.append(Path(command[-1]))
            with monkeypatch.context() as other:
                other.setattr(emulate.os, "getpid", lambda: 1)
                emulate.compile_source(code, {}, "plain")
        return out

    monkeypatch.setattr(emulate, "_run", with_another)
    code = 'extern "C" __global__ void f(double* out) { out[0] = 1.0; }\n'
    path = emulate.compile_source(code, {}, "plain")
    assert linked
    assert list(tmp_path.iterdir()) == [path]
