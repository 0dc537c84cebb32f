"""The command line: ``maskerade-fast fit | predict | info | bench``.

Bad input ends with one line on standard error and exit status 2, never with a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..errors import BackendUnavailableError
from .about import info
from .parser import parser

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except (ValueError, TypeError, MemoryError, BackendUnavailableError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"maskerade-fast {options.command}: {message}", file=sys.stderr)
        return _BAD_INPUT
    except KeyboardInterrupt:
        print(f"maskerade-fast {options.command}: interrupted before there was a result", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has seen enough, as in `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _run(options: argparse.Namespace) -> int:
    if hasattr(options, "header"):
        options.header = {"yes": True, "no": False}.get(options.header)
    if options.command == "fit":
        from .fit import fit

        options.progress = not options.quiet and sys.stderr.isatty()
        return fit(options, _silent if options.quiet else print)
    if options.command == "predict":
        from .predict import predict

        return predict(options, lambda text: print(text, file=sys.stderr))
    if options.command == "info":
        return info(options)
    from .bench import bench

    return bench(options)


def _silent(_: str) -> None:
    pass
