"""The limit of BLAS threads, and forks beside it."""

from __future__ import annotations

import os
import threading
import time

import pytest

from maskerade_fast.backends import _blas


class _SlowController:
    """Stands for threadpoolctl's; takes a while to change the number of threads."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.changing = False

    def limit(self, **_: object) -> _SlowController:
        return self

    def __enter__(self) -> None:
        self.changing = True
        self.started.set()
        time.sleep(0.2)
        self.changing = False

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_no_fork_while_the_number_of_blas_threads_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """CASES C31: the child would inherit a lock of OpenBLAS that nobody in it can release."""
    slow = _SlowController()
    monkeypatch.setattr(_blas, "_controller", slow)

    def work() -> None:
        with _blas.single_threaded_blas():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    assert slow.started.wait(10)
    child = os.fork()
    if child == 0:
        changing = slow.changing
        with _blas.single_threaded_blas():  # the child's own lock is free
            os._exit(int(changing))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
