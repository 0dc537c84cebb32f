"""Checks of the files that a user asks for, before the work begins: what could not be written after it is refused."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import MissingDependencyError, UsageError
from .output_files import StrPath, create, descriptor_number, hold_pipe, identity_of, remove, status_of, temporary_name


def check_outputs(outputs: Mapping[str, StrPath | None], inputs: Sequence[StrPath]) -> None:
    """Refuse outputs, standard output among them, that could not be written, or would overwrite an input or each other.

    Parameters
    ----------
    outputs : mapping of str to path or None
        Path by option, as ``{"--save": Path("model.npz"), "--plot": None}``; None for an option without a value. The
        suffix of ``--plot`` must be one that matplotlib writes; only then is matplotlib imported.
    inputs : sequence of paths
        Files that are read; those that do not exist are skipped.

    Raises
    ------
    UsageError
        In one line with the option, the path, what is wrong and the cure.
    MissingDependencyError
        For a picture, if matplotlib is not installed.

    Notes
    -----
    Files are compared by device and inode instead of name: this covers relative paths, symbolic and hard links. Names
    of new files that differ by case are equal where the folder does not distinguish them. A temporary file is made and
    removed in the folder of every new file. A named pipe needs a reader and is kept open until it is written.
    """
    taken: dict[tuple[Any, ...], str] = {}
    for source in inputs:
        with contextlib.suppress(OSError):
            status = os.stat(source)
            if not stat.S_ISCHR(status.st_mode):  # a terminal may serve both ways
                taken.setdefault(identity_of(status), f"the input {_shown(source)}")
    report = {}
    for number, name in ((1, "standard output"), (2, "standard error")):
        with contextlib.suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode):
                report[identity_of(status)] = name
                if number == 1 and identity_of(status) in taken:  # as with ``>> data.csv``
                    raise UsageError(f"standard output goes into {taken[identity_of(status)]}; expected another file")
    for option, path in outputs.items():
        if path is None:
            continue
        try:
            identity = _checked(option, path)
        except OSError as error:
            raise _refusal(option, path, f"cannot be written ({error.strerror or error})", "another file") from None
        if identity is None:
            continue
        if identity in taken:
            raise _refusal(option, path, f"the same file as {taken[identity]}", "another name")
        if identity in report and descriptor_number(path) is None:
            raise _refusal(option, path, f"the file that {report[identity]} goes to", "another name")
        taken[identity] = f"{option} {_shown(path)}"


def _checked(option: str, path: StrPath) -> tuple[Any, ...] | None:
    """Identity of the file `path`, new or not; None for /dev/null. UsageError or OSError if it cannot be written."""
    if not os.fspath(path):
        raise _refusal(option, path, "an empty name", "the name of a file to write")
    if option == "--plot":
        _check_picture(option, path)
    number = descriptor_number(path)
    status = status_of(path) if number is None else os.fstat(number)
    if status is None:
        return _checked_new(option, path)
    kind = status.st_mode
    if stat.S_ISDIR(kind) or stat.S_ISBLK(kind) or (stat.S_ISSOCK(kind) and number is None):
        what = "a folder" if stat.S_ISDIR(kind) else "a disk or a socket"
        raise _refusal(option, path, what, "the name of a file to write")
    if number is not None:
        if not _writable(number):
            raise OSError(errno.EBADF, "it is closed, or open for reading only")
    elif stat.S_ISFIFO(kind):
        _check_pipe(option, path, status)
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with contextlib.suppress(OSError):
        if os.path.samestat(status, os.stat(os.devnull)):
            return None
    return identity_of(status)


def _checked_new(option: str, path: StrPath) -> tuple[Any, ...]:
    """Identity of a new file: its folder, and its name as far as the folder distinguishes names."""
    folder, name = os.path.split(target := os.path.realpath(path))
    status = status_of(folder)
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise _refusal(option, path, f"no folder {_shown(folder)} to write to", "one that is there")
    temporary = temporary_name(target)
    try:
        file = create(temporary, None)
        assert file is not None
        file.close()
        tells_case = not os.path.exists(os.path.join(folder, os.path.basename(temporary).upper()))
    finally:
        remove(temporary)
    return (*identity_of(status), name if tells_case else name.casefold())


def _check_picture(option: str, path: StrPath) -> None:
    try:
        from matplotlib.backend_bases import FigureCanvasBase

        suffixes = sorted({*FigureCanvasBase.get_supported_filetypes()} - {"pgf"})  # pgf needs TeX, which reads names
    except ImportError:
        raise MissingDependencyError(
            f"{option} needs matplotlib: pip install 'maskerade_fast[plot]'", name="matplotlib"
        ) from None
    except Exception as error:  # of a broken matplotlibrc, or of MPLBACKEND
        raise UsageError(f"{option}: matplotlib cannot be imported ({' '.join(str(error).split())})") from None
    suffix = os.path.splitext(path)[1]
    if suffix and suffix[1:].lower() not in suffixes:
        raise _refusal(option, path, f"no picture has the suffix {_shown(suffix)}", f"one of .{', .'.join(suffixes)}")


def _check_pipe(option: str, path: StrPath, status: os.stat_result) -> None:
    try:
        hold_pipe(path, status)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _refusal(option, path, "a pipe that nobody reads", "its reader to be started first, or a file") from None


def _writable(number: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows, where no path leads to a descriptor
        return True
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _refusal(option: str, path: StrPath, problem: str, cure: str) -> UsageError:
    return UsageError(f"{option}: {_shown(path)}: {problem}, expected {cure}")


def _shown(path: StrPath) -> str:
    text = os.fspath(path)
    text = text if len(text) <= 200 else f"{text[:98]}...{text[-98:]}"
    return text if text.isprintable() else repr(text)
