"""The first module that the package imports: it makes the command safe while the other modules load.

Loading takes about a second. In a process that is the command ``maskerade-fast`` an interrupt then ends it with one
line and status 130, without a traceback; `console.run` takes over from there. A standard stream that is closed gets its
number occupied, else the next file that is opened would take it, and messages would go into that file. An import as a
library does neither.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import Any

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_MESSAGE = b"maskerade-fast: interrupted before there was a result\n"
_STANDARD_STREAMS = (0, 1, 2)


def interrupt_signals() -> list[signal.Signals]:
    """Those that end a run and that this process does not ignore, as one does in the background or under nohup."""
    signals = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [number for number in signals if number is not None and signal.getsignal(number) is not signal.SIG_IGN]


def occupy_closed_streams() -> None:
    """Open the null device, for reading, under the number of every standard stream that is closed.

    What is written there fails still, and the failure can be said.
    """
    for number in _STANDARD_STREAMS:
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                os.open(os.devnull, os.O_RDONLY)  # takes the lowest free number, this one


def is_command() -> bool:
    """Whether this process is ``maskerade-fast`` or ``python -m maskerade_fast``."""
    arguments: list[str] = getattr(sys, "argv", None) or [""]
    if arguments[0] == "-m":  # while Python looks for the module to run, which stands before its arguments
        module = "".join(sys.orig_argv[-len(arguments) :][:1]).removeprefix("-m")
        return bool(module.partition(".")[0] == "maskerade_fast")
    if arguments[0] not in sys.orig_argv:  # a worker process has the arguments of its parent
        return False
    return os.path.basename(arguments[0]).removesuffix(".exe").removesuffix("-script.py") == "maskerade-fast"


def _end(*_: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(2, _MESSAGE)
    os._exit(INTERRUPTED)


AS_COMMAND = is_command()
if AS_COMMAND:
    # Loading leaves next to no garbage, and looking for it takes a tenth of a second. `cli.fit` turns the collector on
    # again at its first row; the other commands are short.
    gc.disable()
    occupy_closed_streams()
    for _number in interrupt_signals():
        signal.signal(_number, _end)
