"""Files that the user asks for: checked before the work begins, then written whole or not at all.

`check_outputs` refuses, before minutes of work, what could not be written after them. `replacing` writes into a
temporary file in the folder of the target and renames it at the end, so that a reader sees the old file or the new one.
What cannot be renamed over (a device, a pipe, ``/dev/stdout``, a file in a folder that takes no new ones) gets the
whole content at the end, when it is complete.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, BinaryIO, TextIO, cast

from ..errors import MissingDependencyError, UsageError

StrPath = str | os.PathLike[str]

_IN_MEMORY = 64 * 2**20  # bytes of content for a pipe or a device, beyond which it waits in a temporary file
_MOST_LINKS = 40  # as Linux follows
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
# A folder that takes no new file, a file mounted by itself (as containers do), another's file in a folder as /tmp
_NOT_REPLACEABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
_DESCRIPTOR = re.compile(r"(?:/dev|/proc/(\d+)(?:/task/\d+)?)/fd/(\d+)")

_unfinished: dict[str, int] = {}  # temporary files by path; the process that made each
_pipes: dict[tuple[int, int], int] = {}  # named pipes that `check_outputs` has opened: device and inode, descriptor


@contextmanager
def replacing(path: StrPath) -> Iterator[BinaryIO]:
    """Give a binary file, open for reading and writing, whose content replaces `path` if the block ends well.

    Parameters
    ----------
    path : path
        Of a symbolic link the target is replaced and the link stays. A new file takes its mode from the umask; one that
        replaces another keeps its mode, and owner and group where the system lets us. Other hard links of it keep the
        old content.

    Raises
    ------
    OSError
        If it cannot be written. An old file is then whole, and no temporary file is left; so it is after an interrupt.

    Notes
    -----
    The content is on the disk (fsync) before the new name is. Where the folder takes no new file, or the file cannot be
    renamed over, the complete content is copied into the old file; only then could a crash or a full disk leave part of
    it. A read-only file is not replaced. Two writers at a time leave one whole file.
    """
    number = _descriptor_number(path)
    status = _status(path) if number is None else os.fstat(number)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    replaces = number is None and (status is None or stat.S_ISREG(status.st_mode))
    target, file = os.path.realpath(path), None
    temporary = _temporary_name(target) if replaces else ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_named(path, temporary))
        stack.callback(_remove, temporary)
        if replaces:
            if status is not None and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            file = _created(temporary, status)
        replaces = file is not None
        file = file or cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
        stack.enter_context(file)
        yield file
        file.flush()
        if not (replaces and _renamed(file, temporary, target, status)):
            _copy(stack.enter_context(open(temporary, "rb")) if replaces else file, path, number, status)


@contextmanager
def replacing_text(path: StrPath) -> Iterator[TextIO]:
    """Give a text file for `replacing`: UTF-8, and line ends as they are written."""
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(OSError):  # after an error: what is left in its buffer
                text.detach()


def check_outputs(outputs: Mapping[str, StrPath | None], inputs: Sequence[StrPath]) -> None:
    """Refuse outputs that could not be written, or would overwrite an input or each other.

    Parameters
    ----------
    outputs : mapping of str to path or None
        Path by the option that names it, as ``{"--save": Path("model.npz"), "--plot": None}``; None is not asked for.
        The suffix of ``--plot`` must be one that matplotlib writes; matplotlib is imported then only.
    inputs : sequence of paths
        What is read. Those that are not there are passed over.

    Raises
    ------
    UsageError
        In one line with the option, the path, what is wrong and the cure.
    MissingDependencyError
        For a picture, if matplotlib is not installed.

    Notes
    -----
    Files are compared by what they are, not by their names: relative paths, symbolic and hard links, and names that
    differ by case where the folder does not tell them apart. A temporary file is made and removed in the folder of
    every new file. A named pipe needs a reader, and is held open until it is written.
    """
    taken: dict[tuple[Any, ...], str] = {}
    for path in inputs:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            if not stat.S_ISCHR(status.st_mode):  # a terminal may serve both ways
                taken.setdefault(_identity(status), f"the input {_shown(path)}")
    report = {}
    for number, name in ((1, "standard output"), (2, "standard error")):
        with contextlib.suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode):
                report[_identity(status)] = name
    for option, given in outputs.items():
        if given is None:
            continue
        try:
            identity = _checked(option, given)
        except OSError as error:
            raise _refusal(option, given, f"cannot be written ({error.strerror or error})", "another file") from None
        if identity is None:
            continue
        if identity in taken:
            raise _refusal(option, given, f"the same file as {taken[identity]}", "another name")
        if identity in report and _descriptor_number(given) is None:
            raise _refusal(option, given, f"the file that {report[identity]} goes to", "another name")
        taken[identity] = f"{option} {_shown(given)}"


def check_standard_output(inputs: Sequence[StrPath]) -> None:
    """UsageError where standard output goes into a file that is read, as with ``>> data.csv``."""
    with contextlib.suppress(OSError):
        status = os.fstat(1)
        for path in inputs:
            if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.stat(path)):
                raise UsageError(f"standard output goes into {_shown(path)}, which is read; expected another file")


def remove_unfinished() -> None:
    """Remove the temporary files of this process; for its end, as a second interrupt may have cut short the first."""
    for path in [path for path, process in _unfinished.items() if process == os.getpid()]:
        with contextlib.suppress(OSError):
            _remove(path)


atexit.register(remove_unfinished)


def _checked(option: str, path: StrPath) -> tuple[Any, ...] | None:
    """What file `path` is, new or not; None for /dev/null. UsageError or OSError if it cannot be written."""
    if not os.fspath(path):
        raise _refusal(option, path, "an empty name", "the name of a file to write")
    if option == "--plot":
        _check_picture(option, path)
    number = _descriptor_number(path)
    status = _status(path) if number is None else os.fstat(number)
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
        _hold_pipe(option, path, status)
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with contextlib.suppress(OSError):
        if os.path.samestat(status, os.stat(os.devnull)):
            return None
    return _identity(status)


def _checked_new(option: str, path: StrPath) -> tuple[Any, ...]:
    """What file a new one will be: its folder and its name, as far as the folder tells names apart."""
    folder, name = os.path.split(target := os.path.realpath(path))
    status = _status(folder)
    if status is None or not stat.S_ISDIR(status.st_mode):
        raise _refusal(option, path, f"no folder {_shown(folder)} to write to", "one that is there")
    temporary = _temporary_name(target)
    try:
        file = _created(temporary, None)
        assert file is not None
        file.close()
        tells_case = not os.path.exists(os.path.join(folder, os.path.basename(temporary).upper()))
    finally:
        _remove(temporary)
    return (*_identity(status), name if tells_case else name.casefold())


def _check_picture(option: str, path: StrPath) -> None:
    try:
        from matplotlib.backend_bases import FigureCanvasBase

        suffixes = sorted({*FigureCanvasBase.get_supported_filetypes()} - {"pgf"})  # which wants TeX and reads names
    except ImportError:
        raise MissingDependencyError(
            f"{option} needs matplotlib: pip install 'maskerade_fast[plot]'", name="matplotlib"
        ) from None
    except Exception as error:  # of a broken matplotlibrc, or of MPLBACKEND
        raise UsageError(f"{option}: matplotlib cannot be imported ({' '.join(str(error).split())})") from None
    suffix = os.path.splitext(path)[1]
    if suffix and suffix[1:].lower() not in suffixes:
        raise _refusal(option, path, f"no picture has the suffix {_shown(suffix)}", f"one of .{', .'.join(suffixes)}")


def _hold_pipe(option: str, path: StrPath, status: os.stat_result) -> None:
    """Open a named pipe for `replacing`; closed before, its reader would take that for the end."""
    if _identity(status) in _pipes:
        return
    try:
        _pipes[_identity(status)] = os.open(path, os.O_WRONLY | _BINARY | _NO_WAITING)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise _refusal(option, path, "a pipe that nobody reads", "its reader to be started first, or a file") from None


def _status(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _descriptor_number(path: StrPath) -> int | None:
    """Number of the open file of this process that `path` leads to, as ``/dev/stdout`` does; None for other paths."""
    place = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        place = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
        match = _DESCRIPTOR.fullmatch(place)
        if match:
            return int(match[2]) if match[1] in (None, str(os.getpid())) else None
        try:
            place = os.path.join(os.path.dirname(place), os.readlink(place))
        except (OSError, ValueError):
            return None
    return None


def _writable(number: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows, where no path leads to a descriptor
        return True
    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY


def _temporary_name(target: str) -> str:
    """A name beside `target` that no other writer has, and short: that of the target may have all its 255 bytes."""
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    _unfinished[temporary] = os.getpid()
    return temporary


def _created(temporary: str, status: os.stat_result | None) -> BinaryIO | None:
    """The temporary file; None where the folder takes no new file but there is an old one to write into."""
    mode = 0o666 if status is None else 0o600  # until the old file's mode is given to it
    try:
        return open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, mode), "w+b")
    except OSError as error:
        if status is not None and error.errno in _NOT_REPLACEABLE:
            return None
        raise


def _renamed(file: BinaryIO, temporary: str, target: str, status: os.stat_result | None) -> bool:
    """Close the temporary file and give it the name of the target; False where only its content can go there."""
    if status is not None and hasattr(os, "fchown"):
        for owner, group in ((-1, status.st_gid), (status.st_uid, -1)):
            with contextlib.suppress(OSError):
                os.fchown(file.fileno(), owner, group)
        with contextlib.suppress(OSError):
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
    os.fsync(file.fileno())
    file.close()
    try:
        os.replace(temporary, target)
    except OSError as error:
        if status is not None and error.errno in _NOT_REPLACEABLE:
            return False
        raise
    with contextlib.suppress(OSError):  # the new name too; Windows cannot open folders
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return True


def _copy(content: IO[bytes], path: StrPath, number: int | None, status: os.stat_result | None) -> None:
    """Write all of `content` into what is there."""
    assert status is not None
    if number is not None:
        descriptor = os.dup(number)
    elif stat.S_ISFIFO(status.st_mode) and _identity(status) in _pipes:
        descriptor = _pipes.pop(_identity(status))
    else:
        descriptor = os.open(path, os.O_WRONLY | _BINARY | _NO_WAITING)  # of a pipe without a reader: ENXIO
    with open(descriptor, "wb") as sink:
        if stat.S_ISFIFO(status.st_mode) and number is None:
            os.set_blocking(descriptor, True)
        content.seek(0)
        shutil.copyfileobj(content, sink)
        sink.flush()
        if stat.S_ISREG(status.st_mode) and number is None:
            sink.truncate()
            os.fsync(descriptor)


@contextmanager
def _named(path: StrPath, temporary: str) -> Iterator[None]:
    """Errors name `path`, not the temporary file or nothing."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == temporary:
            error.filename, error.filename2 = os.fspath(path), None
        raise


def _remove(temporary: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of "" too there is nothing
    _unfinished.pop(temporary, None)


def _refusal(option: str, path: StrPath, problem: str, cure: str) -> UsageError:
    return UsageError(f"{option}: {_shown(path)}: {problem}, expected {cure}")


def _shown(path: StrPath) -> str:
    text = os.fspath(path)
    text = text if len(text) <= 200 else f"{text[:98]}...{text[-98:]}"
    return text if text.isprintable() else repr(text)
