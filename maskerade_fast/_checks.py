"""Checks of public arguments: every message names the argument, what was expected and what came.

Arrays leave here native-endian, C-contiguous, aligned, writable and float64 or float32: one type for compiled
code, and everything below can trust them. CuPy arrays stay on their card. Small ones are copied to the host to be
looked at; large ones are checked on the card, and one number comes back to say that all is well.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Of a CuPy array that checks copy to the host: one wait instead of two launches and a wait per check
_SEEN_BYTES = 2**20


def is_cupy(array: Any) -> bool:
    """True for CuPy arrays, without importing cupy."""
    return type(array).__module__.partition(".")[0] == "cupy"


def float_array(
    value: Any,
    name: str,
    *,
    ndim: int | tuple[int, ...],
    dtype: np.dtype[Any] | type | None = None,
    allow: str = "",
    own: bool = False,
) -> Array:
    """Convert `value` to a floating array and check it; an array that needs no change is not copied, unless `own`.

    Parameters
    ----------
    value : array-like
    name : str
        The argument's name, for messages.
    ndim : int or tuple of int
        Dimensions accepted.
    dtype : float32 or float64, optional
        Type of the result; by default float32 stays float32 and everything else becomes float64.
    allow : {"", "-inf", "any"}
        Every entry must be finite; ``"-inf"`` accepts minus infinity, ``"any"`` leaves them to the caller.
    own : bool
        Always copy: for containers, which must not change when the caller's array does.

    Raises
    ------
    TypeError
        For complex, object, text and date arrays.
    ValueError
        For a wrong number of dimensions, lists of unequal lengths, NaN or infinity, naming the first index.
    """
    array: Any = plain_array(value, name)
    if dtype is None:
        dtype = np.float32 if is_float32(array) else np.float64
    with array.device if is_cupy(array) else nullcontext():
        if is_cupy(array):
            array = array.astype(dtype, order="C", copy=own)
        elif own:
            array = np.array(array, dtype=dtype, order="C")
        else:
            array = np.require(array, dtype=dtype, requirements=["C", "A", "W"])
        accepted = (ndim,) if isinstance(ndim, int) else ndim
        if array.ndim not in accepted:
            expected = " or ".join(f"{n}-D" for n in accepted)
            raise ValueError(f"{name}: expected a {expected} array, got shape {array.shape}")
        if allow != "any":
            check_finite(seen_by_host(array), name, allow=allow)
    checked: Array = array
    return checked


def seen_by_host(array: Array) -> Array:
    """`array` as checks look at it: a copy on the host of a small CuPy array, else itself."""
    if is_cupy(array) and array.nbytes <= _SEEN_BYTES:
        copied: Array = array.get()  # type: ignore[attr-defined]
        return copied
    return array


def plain_array(value: Any, name: str) -> Array:
    """`value` as an array of real numbers of whatever type, or TypeError; CuPy arrays stay as they are."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise ValueError(f"{name}: a masked array with masked entries, expected none; drop those rows")
    _refuse_unit(value, name)
    try:
        array = value if is_cupy(value) else np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: expected a rectangular array ({error})") from None
    except TypeError as error:
        raise TypeError(f"{name}: expected real numbers ({error})") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected real numbers, got an array of dtype {array.dtype}{_odd_column(array)}")
    return array


def _odd_column(array: Array) -> str:
    """Which column of a table of objects holds something else than numbers, and what; for a message."""
    if array.dtype != object or array.ndim != 2:
        return ""
    for k in range(array.shape[1]):
        odd = [value for value in array[:, k] if not isinstance(value, int | float | np.number)]
        if odd:
            text = repr(odd[0])
            return f"; column {k} holds {text if len(text) <= 30 else text[:27] + '...'}"
    return "; its entries are numbers, of which .astype(float) makes an array"


def _refuse_unit(value: Any, name: str) -> None:
    """Raise TypeError for a quantity of astropy, pint or unyt, or a list of such: its unit would be lost unseen."""
    if type(value) is np.ndarray or is_cupy(value):
        return
    if isinstance(value, list | tuple):
        if value:
            _refuse_unit(value[0], name)
        return
    if hasattr(value, "columns") or hasattr(value, "iloc"):  # in a data frame these are names of columns
        return
    for holder in (value, getattr(value, "data", None)):  # xarray keeps a quantity in `data`, or a unit as text
        unit = getattr(holder, "unit", None)
        unit = getattr(holder, "units", None) if unit is None else unit
        if unit is None or callable(unit) or (isinstance(unit, str) and not hasattr(value, "attrs")):
            continue
        if str(unit) not in ("", "dimensionless", "1"):
            raise TypeError(
                f"{name}: an array with a unit ({unit}), expected plain numbers; convert it to one unit, the same for "
                "fits and predictions, and pass its values"
            )


def is_float32(array: Array) -> bool:
    """True for float32 of either byte order."""
    return array.dtype.kind == "f" and array.dtype.itemsize == 4


def check_finite(array: Any, name: str, *, allow: str = "") -> None:
    """Raise ValueError naming the first entry of `array` that is NaN or infinite."""
    good = np.isfinite(array)
    if allow == "-inf":
        good |= array == -np.inf
    if not good.all():
        array, good = (a.get() if is_cupy(a) else a for a in (array, good))
        if array.ndim == 0:
            raise ValueError(f"{name}: {array[()]}, expected a finite number")
        index = tuple(int(i) for i in np.argwhere(~good)[0])
        where = index[0] if len(index) == 1 else index
        raise ValueError(f"{name}[{where}]: {array[index]}, expected a finite number")


def check_size(array: Array, name: str, most: float = 1e150) -> None:
    """ValueError where an entry of a checked array is so large that its square would overflow."""
    largest = float(abs(seen_by_host(array)).max()) if array.size else 0.0
    if largest > most:
        raise ValueError(f"{name}: entries up to {largest:g}, expected at most {most:g}; rescale")


def positive(value: Any, name: str) -> float:
    """A finite number > 0 as float."""
    number = real(value, name)
    if not number > 0.0:
        raise ValueError(f"{name}: {number}, expected > 0")
    return number


def non_negative(value: Any, name: str) -> float:
    """A finite number >= 0 as float."""
    number = real(value, name)
    if not number >= 0.0:
        raise ValueError(f"{name}: {number}, expected >= 0")
    return number


def real(value: Any, name: str) -> float:
    """A finite real number as float."""
    return float(float_array(value, name, ndim=0)[()])


def integer(value: Any, name: str, *, minimum: int) -> int:
    """An integer >= `minimum`; booleans and floats are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name}: {value}, expected >= {minimum}")
    return int(value)


def one_of(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """`value` if it is among `choices`."""
    if value not in choices:
        raise ValueError(f"{name}: {value!r}, expected one of {', '.join(map(repr, choices))}")
    return value


def generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """A Generator from an int, a Generator or None; the global generator is never touched."""
    if isinstance(seed, np.random.Generator):
        return seed
    if seed is not None:
        seed = integer(seed, name, minimum=0)
    return np.random.default_rng(seed)


def callers_level() -> int:
    """`stacklevel` with which the function that calls this one names the line outside the package that led here."""
    level, package = 1, __name__.partition(".")[0]
    # contextlib stands between a function and its decorators that are context managers
    while sys._getframe(level).f_globals.get("__name__", "").partition(".")[0] in (package, "contextlib"):
        level += 1
    return level
