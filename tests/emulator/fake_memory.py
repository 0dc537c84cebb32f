"""Memory of the stand-in's arrays: each in pages of its own whose one end is guarded (guards.hpp tells how).

An array ends where a page without access begins, as nearly as 16 bytes allow if its size is a multiple of them, to the
byte if it is not; where threads run in reverse order it begins after one. The rest of its pages holds a pattern.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any, NamedTuple

import emulate
import numpy as np
from fake_state import state

PAGE = 4096
GUARD = 1 << 20  # bytes without access on either side, as in guards.hpp
KEPT = 1 << 25  # bytes of pages that wait for their next array
PATTERN = bytes([0xA5, 0xA5, 0xFF, 0xFF]) * (PAGE // 4)
NORESERVE = 0x4000  # Linux' MAP_NORESERVE, which Python names from 3.13 on

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_spare: dict[int, list[int]] = {}
_kept = 0
_alive: weakref.WeakSet[Region] = weakref.WeakSet()
_torn: list[str] = []


class Extent(NamedTuple):
    """Where an array lies: ``[begin, end)`` of the accessible ``[low, high)``, as in shim.hpp."""

    low: int
    begin: int
    end: int
    high: int


class Region:
    """Pages of one array, the base of the NumPy array on them; given back with the last view."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None) -> None:
        size = dtype.itemsize
        for n in shape:
            size *= n
        room = max(1, -(-size // PAGE)) * PAGE
        low = _take(room)
        alignment = min(16, size & -size) if size else 1
        begin = low if state.options.order == 1 else (low + room - size) // alignment * alignment
        self.extent = Extent(low, begin, begin + size, low + room)
        _paint(low, begin)
        _paint(begin + size, low + room)
        self.__array_interface__ = {
            "data": (begin, False),
            "shape": shape,
            "typestr": dtype.str,
            "strides": strides,
            "version": 3,
        }
        _alive.add(self)

    def look(self, state: str = "") -> None:
        """Note a pattern that is not as it was."""
        low, begin, end, high = self.extent
        if not (_painted(low, begin) and _painted(end, high)):
            _torn.append(f"a write beside an array of {end - begin} bytes{state}")
            _paint(low, begin)
            _paint(end, high)

    def __del__(self) -> None:
        if hasattr(self, "extent"):
            self.look(", which is gone")
            _give_back(self.extent.low, self.extent.high - self.extent.low)


def check() -> None:
    """LaunchError if anything was written beside an array by a launch of which it was no argument."""
    for region in list(_alive):
        region.look()
    said, _torn[:] = "; ".join(_torn), []
    if said:
        raise emulate.LaunchError(f"some launch, or something else: {said}")


def _take(room: int) -> int:
    """First address of `room` accessible bytes between guards."""
    global _kept
    try:
        low = _spare[room].pop()
    except (KeyError, IndexError):
        pass
    else:
        _kept -= room
        return low
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    address = _libc.mmap(None, room + 2 * GUARD, 0, flags, -1, 0)
    if address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"{room:,} bytes of emulated memory")
    low = int(address) + GUARD
    if _libc.mprotect(low, room, mmap.PROT_READ | mmap.PROT_WRITE):
        raise MemoryError(f"{room:,} bytes of emulated memory")
    return low


def _give_back(low: int, room: int) -> None:
    global _kept
    if room + _kept <= KEPT:
        _kept += room
        _spare.setdefault(room, []).append(low)
    else:
        _libc.munmap(low - GUARD, room + 2 * GUARD)


def _paint(start: int, stop: int) -> None:
    if stop > start:
        ctypes.memmove(start, PATTERN[start % PAGE : start % PAGE + stop - start], stop - start)


def _painted(start: int, stop: int) -> bool:
    return ctypes.string_at(start, stop - start) == PATTERN[start % PAGE : start % PAGE + stop - start]


def root_of(array: np.ndarray[Any, Any]) -> Any:
    """The array that all views of its memory go back to; its base may be a `Region`."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def extent_of(array: np.ndarray[Any, Any]) -> Extent:
    region: Any = root_of(array).base
    return region.extent


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:
    """An array in guarded memory, of whatever was there; fresh pages are zero."""
    return np.asarray(Region(shape, dtype, strides))


def moved(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """`array` itself if its memory is guarded, or else a copy of it, with all that it is a view of."""
    root = root_of(array)
    if isinstance(root.base, Region):
        return array
    if not (root.flags.c_contiguous or root.flags.f_contiguous):
        root = array
    own = _copy(root)
    if root is array:
        return own
    shift = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return np.ndarray(array.shape, array.dtype, own, shift, array.strides)


def _copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    plain = array.flags.c_contiguous
    own = empty(array.shape, array.dtype, None if plain else np.empty_like(array).strides)
    own[...] = array
    return own
