"""One BLAS thread at a time: for kernels that run BLAS on many threads, and for bits that must not depend on threads.

OpenBLAS gives other bits with 1 and 2 threads (dpotrf from N = 144 up), and threads of ours times threads of OpenBLAS
took 6.35 s where one BLAS thread took 0.17 s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.RLock()
_users = 0
_limit: Any = None
_controller: Any = None


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """One BLAS thread in the whole process while any caller is inside; the former number afterwards."""
    global _users, _limit, _controller
    with _lock:
        if _users == 0:
            if _controller is None:
                import scipy.linalg.cython_blas  # noqa: F401  (a library must be loaded to be found)
                from threadpoolctl import ThreadpoolController

                _controller = ThreadpoolController()
            _limit = _controller.limit(limits=1, user_api="blas")
            _limit.__enter__()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.__exit__(None, None, None)


def _after_fork() -> None:
    """A child has none of its parent's other threads, hence none of their limits."""
    global _users
    _users = 0
    _lock.release()


if hasattr(os, "register_at_fork"):
    # OpenBLAS holds a lock of its own while its number of threads changes; a child forked then would wait for ever.
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
