"""Arrays of which only the last item is not zero, and the launches on them that test_gpu_far_batches.py runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FAR = 2**31


class Arrays:
    """Arrays of `count` items, all zeros but the last."""

    def __init__(self, emulated: Any, rng: np.random.Generator, count: int) -> None:
        import cupy

        self.count, self._sparse, self._cupy = count, emulated.sparse, cupy
        self.rng = rng

    def last(self, item: Any) -> Any:
        """`item`, an array, after as many of its kind as there are before it."""
        item = np.asarray(item)
        out = self._sparse(self.count, *item.shape, dtype=item.dtype)
        out[-1] = self._cupy.asarray(item)
        return out

    def room(self, *shape: int, dtype: Any = float) -> Any:
        """Zeros for the results of all items."""
        return self._sparse(self.count, *shape, dtype=dtype)

    def zeros(self, *shape: int) -> Any:
        return self._sparse(*shape)

    def columns(self, item: Any) -> Any:
        """A column `item`, (rows,), after as many zeros in each row as there are before it."""
        out = self._sparse(len(item), self.count)
        out[:, -1] = self._cupy.asarray(np.asarray(item))
        return out

    def offsets(self, n: int) -> Any:
        """Of mixtures without components, but for the last with `n`."""
        out = self._sparse(self.count + 1, dtype=np.int64)
        out[-1] = n
        return out

    def here(self, item: Any) -> Any:
        return self._cupy.asarray(np.asarray(item))


Work = Callable[[Arrays], tuple[str, str, dict[str, int], int, int, int, tuple[Any, ...], list[Any]]]
"""Source, entry, macros, blocks, threads, shared bytes, arguments, results."""
CASES: dict[str, tuple[int, int, Work]] = {}


def case(items: int, last: int = 1) -> Callable[[Work], Work]:
    """Register a launch whose smallest batched array has `items` numbers an item; the gap is 2^31 of these.

    `last` blocks run.
    """

    def register(work: Work) -> Work:
        CASES[work.__name__] = (FAR // items + 2, last, work)
        return work

    return register


def i64(*values: int) -> tuple[Any, ...]:
    return tuple(np.int64(value) for value in values)


def i32(*values: int) -> tuple[Any, ...]:
    return tuple(np.int32(value) for value in values)


def factor(rng: np.random.Generator, n: int) -> Any:
    return np.tril(rng.normal(size=(n, n))) + 3.0 * np.sqrt(n) * np.eye(n)
