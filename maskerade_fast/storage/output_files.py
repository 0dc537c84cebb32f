"""Files that are written whole or not at all.

`replacing` writes into a temporary file in the folder of the target and renames it at the end: a reader sees the old
file or the new one. A device, a pipe, ``/dev/stdout`` or a file in a folder that takes no new files cannot be replaced
so; they get the whole content at the end.
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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, TextIO, cast

StrPath = str | os.PathLike[str]

_IN_MEMORY = 64 * 2**20  # most bytes for a pipe or a device that are kept in memory; more go to a temporary file
_MOST_LINKS = 40  # as Linux follows
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
# A folder that takes no new file, a file that is a mount (as in containers), another user's file in a folder like /tmp
_NOT_REPLACEABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)
_DESCRIPTOR = re.compile(r"(?:/dev|/proc/(\d+)(?:/task/\d+)?)/fd/(\d+)")

_unfinished: dict[str, int] = {}  # temporary files by path; the process that made each
_pipes: dict[tuple[int, int], int] = {}  # descriptors of the named pipes that `hold_pipe` opened, by device and inode


@contextmanager
def replacing(path: StrPath) -> Iterator[BinaryIO]:
    """Open a binary file for reading and writing whose content replaces `path` if the block ends without an error.

    Parameters
    ----------
    path : path
        For a symbolic link, the target is replaced and the link stays. A new file has the mode of the umask; one that
        replaces another has the old mode, and owner and group where the system allows it. Other hard links keep the old
        content.

    Raises
    ------
    OSError
        If it cannot be written. Then, and after an interrupt, the old file is whole and no temporary file is left.

    Notes
    -----
    The content is on the disk (fsync) before it gets the new name. Where the folder takes no new file, or the file
    cannot be replaced, the complete content is copied into the old file; only then could a crash or a full disk leave a
    part of it. A read-only file is not replaced. Two writers at a time leave one whole file.
    """
    number = descriptor_number(path)
    status = status_of(path) if number is None else os.fstat(number)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    replaces = number is None and (status is None or stat.S_ISREG(status.st_mode))
    target, file = os.path.realpath(path), None
    temporary = temporary_name(target) if replaces else ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_named(path, temporary))
        stack.callback(remove, temporary)
        if replaces:
            if status is not None and not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            file = create(temporary, status)
        replaces = file is not None
        file = file or cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115
        stack.enter_context(file)
        yield file
        file.flush()
        if not (replaces and _renamed(file, temporary, target, status)):
            _copy(stack.enter_context(open(temporary, "rb")) if replaces else file, path, number, status)


@contextmanager
def replacing_text(path: StrPath) -> Iterator[TextIO]:
    """Like `replacing`, for text in UTF-8 with line ends as they are written."""
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(OSError):  # after an error the buffer may not be empty
                text.detach()


def remove_unfinished() -> None:
    """Remove the temporary files of this process at its end: a second interrupt may have stopped their removal."""
    for path in [path for path, process in _unfinished.items() if process == os.getpid()]:
        with contextlib.suppress(OSError):
            remove(path)


atexit.register(remove_unfinished)


def status_of(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def hold_pipe(path: StrPath, status: os.stat_result) -> None:
    """Open a named pipe and keep it open for `replacing`: its reader would take a close for the end."""
    if identity_of(status) not in _pipes:
        _pipes[identity_of(status)] = os.open(path, os.O_WRONLY | _BINARY | _NO_WAITING)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def descriptor_number(path: StrPath) -> int | None:
    """Descriptor of this process that `path` names, as ``/dev/stdout`` does; None for other paths."""
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


def temporary_name(target: str) -> str:
    """A new name in the folder of `target`; a short one, as the target's own may have the most bytes allowed, 255."""
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    _unfinished[temporary] = os.getpid()
    return temporary


def create(temporary: str, status: os.stat_result | None) -> BinaryIO | None:
    """Create the temporary file; None where the folder takes no new file but there is an old one to write into."""
    mode = 0o666 if status is None else 0o600  # until it gets the old file's mode
    try:
        return open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, mode), "w+b")
    except OSError as error:
        if status is not None and error.errno in _NOT_REPLACEABLE:
            return None
        raise


def _renamed(file: BinaryIO, temporary: str, target: str, status: os.stat_result | None) -> bool:
    """Close the temporary file and rename it to the target; False where this cannot be replaced."""
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
    with contextlib.suppress(OSError):  # flush the folder, which has the new name; Windows cannot open folders
        folder = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return True


def _copy(content: IO[bytes], path: StrPath, number: int | None, status: os.stat_result | None) -> None:
    """Copy `content` into the file, pipe or device that is there."""
    assert status is not None
    if number is not None:
        descriptor = os.dup(number)
    elif stat.S_ISFIFO(status.st_mode) and identity_of(status) in _pipes:
        descriptor = _pipes.pop(identity_of(status))
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
    """Let errors name `path` instead of the temporary file or nothing."""
    try:
        yield
    except OSError as error:
        if error.filename is None or error.filename == temporary:
            error.filename, error.filename2 = os.fspath(path), None
        raise


def remove(temporary: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # "" is no file either
    _unfinished.pop(temporary, None)
