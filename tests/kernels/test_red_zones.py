"""Accesses outside of arrays and of shared memory fail the launch, by name, and later launches work."""

from __future__ import annotations

import faulthandler
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulate
import numpy as np
import pytest
from broken_rules import kernel, line_of

Launch = Callable[[int, int], Any]
N = 32  # doubles of each


@pytest.fixture
def launch(cupy: Any, request: pytest.FixtureRequest) -> Launch:
    """Access place `k` of an array, of static or of dynamic shared memory, of 32 doubles each."""
    kind = request.param
    x, out = cupy.full(N, 2.0), cupy.zeros(1)
    before = cupy.zeros(N)

    def run(k: int, write: int) -> Any:
        number = (np.int64(k), np.int32(write))
        if kind == "array":
            kernel("outside")((1,), (32,), (before, x, out, *number))
        elif kind == "static":
            kernel("outside_static")((1,), (32,), (out, *number))
        else:
            kernel("outside_dynamic")((1,), (32,), (out, *number), shared_mem=8 * N)
        return out

    return run


WHAT = {
    "array": "argument 1, an array of 256 bytes",
    "static": f"shared memory s of 256 bytes (test.cu:{line_of('STATIC')})",
    "dynamic": "dynamic shared memory of 256 bytes",
}
NAME = {"array": "outside", "static": "outside_static", "dynamic": "outside_dynamic"}


@pytest.mark.parametrize("emulated", ["forward", "reverse"], indirect=True)
@pytest.mark.parametrize("write", [0, 1], ids=["read", "write"])
@pytest.mark.parametrize("far", [1, 5000])
@pytest.mark.parametrize("side", ["over", "under"])
@pytest.mark.parametrize("launch", WHAT, indirect=True)
def test_one_access_outside(
    launch: Launch, far: int, side: str, write: int, request: pytest.FixtureRequest, emulated: Any
) -> None:
    kind = request.node.callspec.params["launch"]
    place = N - 1 + far if side == "over" else -far
    guarded = far > 1 or (side == "over") == (emulated.state.options.order == 0)
    if not write and not guarded:  # the side of the pattern: a NaN is read
        assert np.isnan(float(launch(place, write)[0]))
        return
    by = " by thread 31" if guarded else ""
    ends = "reaches {} bytes past the end of" if side == "over" else "begins {} bytes before the beginning of"
    expected = f"{NAME[kind]}: a {'write' if write else 'read'}{by} {ends.format(8 * far)} {WHAT[kind]}"
    with pytest.raises(emulate.LaunchError, match=re.escape(expected)):
        launch(place, write)
    for k in (0, N - 1):  # and all is well again
        launch(k, 1)
        assert float(launch(k, 0)[0]) == 1.0 or kind == "dynamic"


@pytest.mark.parametrize("n", [1, 7, 16, 4095, 4096, 4097])
@pytest.mark.parametrize("emulated", ["forward", "reverse"], indirect=True)
def test_bytes_of_any_number(cupy: Any, emulated: Any, n: int) -> None:
    x, out = cupy.ones(n, np.uint8), cupy.zeros(1, np.uint8)
    function = kernel("outside_bytes")
    for k, write in ((0, 1), (n - 1, 1), (n - 1, 0)):
        function((1,), (1,), (x, out, np.int64(k), np.int32(write)))
    ends = {n: "reaches 1 bytes past the end of", -1: "begins 1 bytes before the beginning of"}
    for k, end in ends.items():
        with pytest.raises(emulate.LaunchError, match=f"a write .*{end} argument 0, an array of {n} bytes"):
            function((1,), (1,), (x, out, np.int64(k), np.int32(1)))
    first = n if emulated.state.options.order == 0 else -1
    with pytest.raises(emulate.LaunchError, match=f"a read by thread 0 {ends[first]} argument 0"):
        function((1,), (1,), (x, out, np.int64(first), np.int32(0)))
    assert (x.get()[1:-1] == 1).all()


def test_an_index_beyond_an_array_of_the_thread(cupy: Any) -> None:
    out = cupy.zeros(N)
    said = f"outside_own: index 4 in an array 'double [4]' by thread 0 at test.cu:{line_of('OWN')}"
    with pytest.raises(emulate.LaunchError, match=re.escape(said)):
        kernel("outside_own")((1,), (N,), (out, np.int32(5)))
    kernel("outside_own")((1,), (N,), (out, np.int32(4)))
    assert (out.get() == 10.0).all()


@pytest.mark.parametrize("far", [-(2**31), -(2**44), 2**40, 2**59])
def test_far_outside(cupy: Any, far: int) -> None:
    """As by an index that overflowed."""
    x, out = cupy.zeros(N), cupy.zeros(1)
    function = kernel("outside")
    with pytest.raises(emulate.LaunchError, match=r"outside: .* by thread 0 is in no array of this launch"):
        function((1,), (1,), (x, x, out, np.int64(far), np.int32(1)))
    function((1,), (1,), (x, x, out, np.int64(5), np.int32(1)))
    assert float(x[5]) == 1.0


def test_a_view_is_guarded_by_its_whole(cupy: Any) -> None:
    whole, out = cupy.zeros(N), cupy.zeros(1)
    kernel("outside")((1,), (1,), (whole, whole[20:], out, np.int64(N - 21), np.int32(1)))
    with pytest.raises(emulate.LaunchError, match="reaches 8 bytes past the end of argument 1, an array of 256 bytes"):
        kernel("outside")((1,), (1,), (out, whole[20:], out, np.int64(N - 20), np.int32(1)))


@pytest.mark.parametrize("make", ["sum", "concatenate", "eigh", "roll", "loaded"])
def test_results_of_numpy_have_guards_too(cupy: Any, make: str) -> None:
    a = cupy.ones((3, 3))
    made = {
        "sum": lambda: a + 1.0,
        "concatenate": lambda: cupy.concatenate([a, a]),
        "eigh": lambda: cupy.linalg.eigh(a)[0],
        "roll": lambda: cupy.roll(a, 1, axis=0),
        "loaded": lambda: cupy.asarray(np.arange(9.0)),
    }[make]()
    with pytest.raises(emulate.LaunchError, match=f"argument 1, an array of {made.nbytes} bytes"):
        kernel("outside")((1,), (1,), (a, made, a, np.int64(made.size), np.int32(0)))


def test_a_stack_has_an_end(cupy: Any) -> None:
    with pytest.raises(emulate.LaunchError, match=r"descend: .* by thread 0 past the end of its stack"):
        kernel("descend")((1,), (32,), (cupy.zeros(1), np.int32(3)))


def test_what_was_written_beside_a_stranger_fails_the_test(cupy: Any, emulated: Any) -> None:
    """An array that was no argument: the fixture looks at it at the end."""
    victim, x = cupy.zeros(N), cupy.zeros(N)
    distance = (victim.data.ptr - x.data.ptr) // 8
    kernel("outside")((1,), (1,), (x, x, x, np.int64(distance - 1), np.int32(1)))
    with pytest.raises(emulate.LaunchError, match="a write beside an array of 256 bytes"):
        emulated.check_memory()
    emulated.check_memory()  # said once
    kernel("outside")((1,), (1,), (x, x, x, np.int64(distance - 1), np.int32(1)))
    del victim
    with pytest.raises(emulate.LaunchError, match="a write beside an array of 256 bytes, which is gone"):
        emulated.check_memory()


def test_signals_are_as_before(cupy: Any) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGSEGV, signal.SIGBUS)]
    enabled = faulthandler.is_enabled()
    with pytest.raises(emulate.LaunchError):
        kernel("outside")((1,), (1,), (cupy.zeros(1),) * 3 + (np.int64(1), np.int32(0)))
    assert before == [signal.getsignal(number) for number in (signal.SIGSEGV, signal.SIGBUS)]
    assert faulthandler.is_enabled() == enabled


def test_a_launch_of_another_thread(cupy: Any) -> None:
    x, messages = cupy.zeros(N), []

    def run() -> None:
        try:
            kernel("outside")((1,), (1,), (x, x, x, np.int64(N), np.int32(1)))
        except emulate.LaunchError as error:
            messages.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "reaches 8 bytes past the end of argument 0" in messages[0]


CRASH = """
import faulthandler, sys
sys.path[:0] = {path!r}
faulthandler.enable()
import fake_cupy, numpy, ctypes
sys.modules.update(fake_cupy.modules)
import cupy
code = 'extern "C" __global__ void f(double* x) {{ x[1] = 1.0; }}'
try:
    cupy.RawModule(code=code).get_function("f")((1,), (1,), (cupy.zeros(1),))
except Exception as error:
    print(error, flush=True)
ctypes.string_at(0)
"""


def test_crashes_of_python_are_faulthandlers(emulated: Any) -> None:
    """After a launch that failed."""
    folder = str(Path(__file__).parents[1] / "emulator")
    command = [sys.executable, "-c", CRASH.format(path=[folder])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "f: a write by thread 0 reaches 8 bytes past the end of argument 0" in done.stdout
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr


def test_a_block_of_the_grid_alone(cupy: Any, emulated: Any) -> None:
    out = cupy.zeros(96)
    for blocks, ran in ((slice(-1, None), [2]), (slice(0, 2), [0, 1]), (slice(1, 2), [1]), (slice(3, None), [])):
        out[:] = -1.0
        emulated.state.options = emulate.Options(blocks=blocks)
        kernel("indices")((3,), (32,), (out, np.int64(96)))
        assert [k for k in range(3) if (out.get()[32 * k : 32 * (k + 1)] >= 0.0).all()] == ran
        assert int((out.get() >= 0.0).sum()) == 32 * len(ran)
