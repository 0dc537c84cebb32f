"""Messages, exit status and interrupts of the command line.

`run` gives a command streams that never raise, one-line warnings, signals that raise KeyboardInterrupt, and an exit
status. Characters that the encoding of a stream lacks are replaced. If a stream fails (closed, full, no reader), the
command continues and writes its files; at the end, one line says that standard output could not be written, with status
2. A reader that stops early (``| head -1``) is no failure.

Status 2 is for what a user can cause: `UsageError` (argparse ends with the same status), `DataError`,
`MissingDependencyError`, `BackendUnavailableError`, lack of memory, errors of the operating system, and a ValueError or
TypeError that the package raises about an argument from the user, by its name (`USERS_ARGUMENTS`). Every other
exception is a fault of the package: status 1.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO, cast

from .._start import AS_COMMAND, INTERRUPTED, interrupt_signals, occupy_closed_streams
from .._streams import Stream
from ..errors import BackendUnavailableError, DataError, MissingDependencyError, UsageError

FAULT, BAD_INPUT = 1, 2
EXIT_STATUSES = (
    "exit status: 0 done; 1 a fault of maskerade-fast (MASKERADE_DEBUG=1 shows where); 2 bad input, or output that "
    "cannot be written; 130 interrupted (Ctrl-C, SIGTERM): what was evaluated until then is printed and written"
)
# Arguments of the functions that commands call, as their messages name them
USERS_ARGUMENTS = frozenset(
    [
        *("X", "y", "X_test", "y_test", "budget", "time_budget", "initial", "batch_size", "max_components", "trend"),
        *("blocks", "noise", "noise_variance", "transform", "nodes", "seed", "device", "checkpoint", "horizon", "step"),
    ]
)
# A warning is raised if the user has made warnings errors
_THE_USERS = (UsageError, DataError, MissingDependencyError, BackendUnavailableError, MemoryError, OSError, Warning)
_PACKAGE = __name__.partition(".")[0]
_PAUSE = 0.5  # seconds after an interrupt in which another one does not raise, while temporary files are removed
_INSISTENT = 4  # the interrupt of this number no longer waits for fragile modules
# Modules in which an interrupt would leave something half made (`_is_fragile`)
_FRAGILE = ("scipy.stats._qmc", "concurrent.futures.thread", _PACKAGE + ".backends._blas", _PACKAGE + ".run.heartbeat")
_ALARM = getattr(signal, "SIGALRM", None)


class Session:
    """A command at work.

    Attributes
    ----------
    program : str
        First words of messages.
    quiet : bool
        True: only errors are shown.
    stage : str
        Words for the time of an interrupt, for its message.
    interrupts : int
        Their number. A KeyboardInterrupt may get lost, for example in a destructor; this count does not.
    """

    def __init__(self) -> None:
        self.program = "maskerade-fast"
        self.quiet = False
        self.stage = "before there was a result"
        self.interrupts = 0
        self._raised = -_PAUSE
        self._working = True
        self._writing = self._waited = False

    @property
    def interrupted(self) -> bool:
        return self.interrupts > 0

    def result_is_there(self) -> None:
        """From now on the first interrupt waits until everything is written; a second one stops the writing."""
        self.stage = "before everything was written"
        self._writing = True

    def note(self, text: str) -> None:
        """Print one line on standard error, unless quiet."""
        if not self.quiet:
            _say_line(text)

    def warn(self, text: str) -> None:
        """Print "Warning: ..." in one line on standard error, unless quiet."""
        self.note(f"Warning: {text}")

    def data_writer(self) -> Callable[[str], Any]:
        """A function that writes data to standard output, in UTF-8 for any encoding of the terminal."""
        stream = sys.stdout if isinstance(sys.stdout, Stream) else Stream(sys.stdout)
        stream.flush()
        return stream.write_utf8

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += number != _ALARM
        if self._working and self.interrupts < _INSISTENT and _ALARM is not None and _is_fragile(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # calls this again, when that may be over
            return
        now = time.monotonic()
        if self._working and now - self._raised >= _PAUSE:
            self._raised = now
            self._waited = self._writing and self.interrupts == 1
            if not self._waited:
                raise KeyboardInterrupt

    def _interrupted(self) -> int:
        _say_line(f"{self.program}: interrupted {self.stage}")
        return INTERRUPTED


def run(work: Callable[[Session], int]) -> int:
    """Run one command; returns its exit status.

    Parameters
    ----------
    work : callable
        Takes the `Session`, prints to the standard streams, and returns an exit status. After an interrupt from which
        it recovers (`Session.interrupted`) the status is 130 in place of 0.

    Raises
    ------
    SystemExit
        If `work` does, as argparse.
    """
    occupy_closed_streams()
    session = Session()
    streams = sys.stdout, sys.stderr
    output, errors = Stream(sys.stdout), Stream(sys.stderr)
    stop: SystemExit | None = None
    try:
        sys.stdout, sys.stderr = cast(TextIO, output), cast(TextIO, errors)
        with _signals(session), _one_line_warnings(session), _silent_destructors():
            try:
                try:
                    status = int(work(session))
                finally:
                    session._working = False
            except SystemExit as error:
                stop, status = error, _code(error)
            except KeyboardInterrupt as error:
                _show_traceback(error)
                status = session._interrupted()
            except Exception as error:
                # an interrupted import leaves modules half made, and some libraries raise other errors for an interrupt
                lost = session.interrupted and not _is_the_users(error)
                _show_traceback(error)
                status = session._interrupted() if lost else _explained(session.program, error)
            else:
                if session.interrupted and status == 0:
                    status = INTERRUPTED
                    kept = "all is written" if session._waited else "the result rests on what was evaluated until then"
                    _say_line(f"{session.program}: interrupted; {kept}")
            output.flush()
            if output.failure is not None and not _is_broken_pipe(output.failure):
                _say_line(f"{session.program}: standard output: cannot be written ({_reason(output.failure)})")
                status = status or BAD_INPUT
            errors.flush()
    finally:
        sys.stdout, sys.stderr = streams
        for stream in (output, errors):
            if stream.failure is not None:
                stream.discard()
    if stop is not None:
        raise SystemExit(status) from None
    return status


def _say_line(text: str) -> None:
    print(" ".join(text.splitlines()), file=sys.stderr, flush=True)


def _code(error: SystemExit) -> int:
    """The status with which Python would end."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    _say_line(str(error.code))
    return FAULT


def _explained(program: str, error: Exception) -> int:
    """Print one line about an error; returns the exit status."""
    if _is_the_users(error):
        _say_line(f"{program}: {_message(error)}")
        return BAD_INPUT
    kind, message = type(error).__name__, str(error)
    report = "(please report; MASKERADE_DEBUG=1 shows the traceback)"
    _say_line(f"{program}: internal error: {kind}{f': {message}' if message else ''} {report}")
    return FAULT


def _show_traceback(error: BaseException) -> None:
    if os.environ.get("MASKERADE_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error, file=sys.stderr)


def _is_the_users(error: Exception) -> bool:
    if isinstance(error, _THE_USERS):
        return True
    named = re.match(r"[A-Za-z_]+(?=.*: )", str(error), re.DOTALL)
    if not isinstance(error, ValueError | TypeError) or not named or named[0] not in USERS_ARGUMENTS:
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__")).partition(".")[0] == _PACKAGE


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return str(error) or "not enough memory"
    return _reason(error)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _is_broken_pipe(error: Exception) -> bool:
    """Whether the reader is gone; Windows reports EINVAL."""
    return isinstance(error, BrokenPipeError) or (os.name == "nt" and getattr(error, "errno", 0) == errno.EINVAL)


@contextmanager
def _signals(session: Session) -> Iterator[None]:
    """Let interrupts raise in the block; after it the process of a command ignores them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, session._interrupt) for number in interrupt_signals()}
    alarm = None if _ALARM is None else signal.signal(_ALARM, session._interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if AS_COMMAND else handler)
        if _ALARM is not None:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(_ALARM, alarm)


def _is_fragile(frame: FrameType | None) -> bool:
    """Whether an interrupt would leave something half made, which fails or crashes later.

    This may be a module that is being loaded; SciPy's table of Sobol directions, whose loader swallows exceptions, so
    that nets from half a table are wrong, endless or a crash; a new thread that is in no list yet, so that Python would
    wait for it at the end; or the number of threads of BLAS.
    """
    while frame is not None and frame.f_code is not run.__code__:
        if frame.f_code.co_filename.startswith("<frozen importlib") or frame.f_globals.get("__name__") in _FRAGILE:
            return True
        frame = frame.f_back
    return False


@contextmanager
def _one_line_warnings(session: Session) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: session.warn(str(message))
        yield


@contextmanager
def _silent_destructors() -> Iterator[None]:
    """Print no traceback of an interrupt in a destructor; the session counts it."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
