"""Calls between compiled functions by address, for those that several others need, or that only some calls need.

Numba compiles what a function calls again with each function that calls it, through all of LLVM's passes. A function
that is called by its address is compiled once, and only when a caller asks for the address. Addresses come as data,
like those of BLAS in `_lapack`: one baked into machine code would be wrong in the next process, so that no disk cache
could keep it. They are passed in named fields, since a wrong one ends the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["address_of", "by_address", "caller"]


def by_address(signature: Any, function: Any) -> tuple[Callable[[], int], Any]:
    """Let compiled functions call another one by its address.

    Parameters
    ----------
    signature
        Numba's, of result and arguments.
    function
        From `_jit.inner` or `_jit.loop`.

    Returns
    -------
    address : callable
        Gives the address in this process; compiles the function, or reads it from the disk cache, if need be.
    call
        For compiled functions: ``call(address, arguments)`` with a tuple of arguments.
    """
    return cache(lambda: address_of(signature, function)), caller(signature)


def address_of(signature: Any, function: Any) -> int:
    """Where the machine code of `function` is in this process."""
    compiled = function.get_compile_result(signature)
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


def caller(signature: Any) -> Any:
    """An intrinsic ``call(address, arguments)`` for functions of this signature, by Numba's calling convention."""
    arguments_type = types.Tuple(signature.args)

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
            convention = context.call_conv
            kind = convention.get_function_type(signature.return_type, signature.args)
            function = builder.inttoptr(args[0], kind.as_pointer())
            values = cgutils.unpack_tuple(builder, args[1])
            status, result = convention.call_function(builder, function, signature.return_type, signature.args, values)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        return signature.return_type(types.int64, arguments_type), codegen

    return call


if config.DISABLE_JIT:
    from ._without_jit import address_of, caller
