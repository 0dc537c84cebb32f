"""The command line: ``maskerade-fast fit | predict | info | warm-up``.

Bad input ends with one line on standard error and exit status 2, never with a traceback (`console`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import UsageError
from .console import Session, run
from .parser import parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""

    def work(session: Session) -> int:
        options = parser().parse_args(arguments)
        session.program = f"maskerade-fast {options.command}"
        _check_threads()
        if options.command == "fit":
            from .fit import fit

            return fit(options, session)
        if options.command == "predict":
            from .predict import predict

            return predict(options, session)
        if options.command == "warm-up":
            from .warm_up import warm_up

            return warm_up(options, session)
        from .about import info

        return info()

    return run(work)


def _check_threads() -> None:
    """Refuse a number of threads that Numba, which reads it while it loads, would fail with."""
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and not (threads.isdecimal() and int(threads) > 0):
        raise UsageError(
            f"NUMBA_NUM_THREADS: {threads!r}, expected a whole number from 1 on; unset it for all processors"
        )
