"""SciPy's BLAS and LAPACK inside compiled code.

Kernels get the routines' addresses as data (`addresses`), so that Numba can cache them on disk: an address
baked into the machine code would be wrong in the next process. All matrices are double precision and
column-major, as LAPACK's: a C-ordered lower triangle is LAPACK's upper one, transposed. Call inside
`single_threaded_blas`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic
from numpy.typing import NDArray

from ._jit import joined

_ROUTINES = (
    ("scipy.linalg.cython_lapack", "dpotrf"),
    ("scipy.linalg.cython_blas", "dtrsm"),
    ("scipy.linalg.cython_blas", "dtrsv"),
    ("scipy.linalg.cython_blas", "dsyrk"),
    ("scipy.linalg.cython_blas", "dgemm"),
)
_DPOTRF, _DTRSM, _DTRSV, _DSYRK, _DGEMM = range(len(_ROUTINES))


@cache
def _address_list() -> tuple[int, ...]:
    return tuple(get_cython_function_address(module, name) for module, name in _ROUTINES)


def addresses() -> NDArray[np.int64]:
    """Addresses of the routines in this process, as the kernels' argument `blas`."""
    return np.array(_address_list(), dtype=np.int64)


def routine(spec: str) -> Any:
    """An intrinsic calling a Fortran-style routine at an address with a tuple of arguments.

    One letter an argument: c a character code, i an integer (C int in the routine), d a double, all passed by
    pointer; p the address of an array; o an output integer, returned and not passed by the caller.
    """
    passed = spec.replace("o", "")
    numba_types = {"c": types.int64, "i": types.int64, "d": types.float64, "p": types.int64}
    argument_types = types.Tuple([numba_types[letter] for letter in passed])
    stored = {"c": ir.IntType(8), "i": ir.IntType(32), "d": ir.DoubleType(), "o": ir.IntType(32)}
    pointed = {**stored, "p": ir.DoubleType()}

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            values = iter(cgutils.unpack_tuple(builder, args[1]))
            pointers = []
            output = None
            for letter in spec:
                if letter == "p":
                    pointers.append(builder.inttoptr(next(values), ir.DoubleType().as_pointer()))
                    continue
                pointer = cgutils.alloca_once(builder, stored[letter])
                if letter == "o":
                    output = pointer
                    builder.store(ir.Constant(stored[letter], 0), pointer)
                else:
                    value = next(values)
                    builder.store(value if letter == "d" else builder.trunc(value, stored[letter]), pointer)
                pointers.append(pointer)
            kind = ir.FunctionType(ir.VoidType(), [pointed[letter].as_pointer() for letter in spec])
            builder.call(builder.inttoptr(args[0], kind.as_pointer()), pointers)
            if output is None:
                return context.get_constant(types.int64, 0)
            return builder.sext(builder.load(output), ir.IntType(64))

        return types.int64(types.int64, argument_types), codegen

    return call


if config.DISABLE_JIT:
    from ._without_jit import routine

_call_potrf = routine("cipio")
_call_trsm = routine("cccciidpipi")
_call_trsv = routine("cccipipi")
_call_syrk = routine("cciidpidpi")
_call_gemm = routine("cciiidpipidpi")

_L, _N, _T, _U = (ord(letter) for letter in "LNTU")


@joined
def potrf(blas: Any, n: int, matrix: int, stride: int) -> int:
    """Cholesky factor L of a symmetric matrix whose lower triangle is stored by rows, in place.

    `matrix` is the address of its first entry, `stride` the length of a stored row; returns LAPACK's info.
    """
    return _call_potrf(blas[_DPOTRF], (_U, n, matrix, stride))  # type: ignore[no-any-return]


@joined
def solve_rows(
    blas: Any, transposed: bool, n: int, k: int, factor: int, stride: int, rows: int, row_stride: int
) -> None:
    """Replace each of the `k` stored rows v (n,) by L^-1 v, or by L^-T v if `transposed`."""
    trans = _N if transposed else _T
    _call_trsm(blas[_DTRSM], (_L, _U, trans, _N, n, k, 1.0, factor, stride, rows, row_stride))


@joined
def solve_vector(blas: Any, transposed: bool, n: int, factor: int, stride: int, vector: int) -> None:
    """Replace a vector v (n,) by L^-1 v, or by L^-T v if `transposed`."""
    _call_trsv(blas[_DTRSV], (_U, _N if transposed else _T, _N, n, factor, stride, vector, 1))


@joined
def subtract_squares(blas: Any, n: int, k: int, rows: int, row_stride: int, out: int, out_stride: int) -> None:
    """out -= V V^T in the lower triangle, V (n, k) and out (n, n) stored by rows."""
    _call_syrk(blas[_DSYRK], (_U, _T, n, k, -1.0, rows, row_stride, 1.0, out, out_stride))


@joined
def subtract_product(
    blas: Any, m: int, n: int, k: int, left: int, right: int, stride: int, out: int, out_stride: int
) -> None:
    """out -= V W^T with V (m, k), W (n, k) and out (m, n) stored by rows; V and W share a stride."""
    _call_gemm(blas[_DGEMM], (_T, _N, n, m, k, -1.0, right, stride, left, stride, 1.0, out, out_stride))


@joined
def solve_panel(blas: Any, n: int, k: int, columns: int, stride: int, rows: int, row_stride: int) -> None:
    """Replace each of the `k` stored rows v (n,) by L^-1 v, L (n, n) stored by columns."""
    _call_trsm(blas[_DTRSM], (_L, _L, _N, _N, n, k, 1.0, columns, stride, rows, row_stride))


@joined
def subtract_panel_product(blas: Any, m: int, n: int, k: int, left: int, right: int, stride: int, out: int) -> None:
    """out -= V W with V (m, k), W (k, n) and out (m, n) stored by rows, all with one stride."""
    _call_gemm(blas[_DGEMM], (_N, _N, n, m, k, -1.0, right, stride, left, stride, 1.0, out, stride))
