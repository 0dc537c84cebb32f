"""Text streams that never raise: characters that the encoding lacks are replaced, and failures are recorded."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any

_PLAIN = {"±": "+-", "−": "-", "–": "-", "×": "x", "µ": "u", "²": "2", "…": "...", "’": "'"}


class Stream:
    """A text stream that never raises: it replaces characters that the encoding lacks and records a failure to write.

    Parameters
    ----------
    stream : text stream or None
        None is a closed one, as in `sys.stdout`.

    Attributes
    ----------
    failure : Exception or None
        The first failure; nothing is written after it.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.failure: Exception | None = None

    def write(self, text: str) -> int:
        self._attempt(lambda stream: stream.write(_encodable(text, getattr(stream, "encoding", None))), text)
        return len(text)

    def write_utf8(self, text: str) -> int:
        """Write `text` as UTF-8, for any encoding of the stream."""
        buffer = getattr(self._stream, "buffer", None)
        if buffer is None:
            return self.write(text)
        self._attempt(lambda _: buffer.write(text.encode("utf-8", "backslashreplace")), text)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            self._attempt(lambda stream: stream.flush(), "all")

    def isatty(self) -> bool:
        try:
            return self.failure is None and bool(self._stream.isatty())
        except (OSError, ValueError, AttributeError):
            return False

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return int(self._stream.fileno())

    def discard(self) -> None:
        """Empty the buffer of a failed stream; at the end Python would try to write it again, and complain."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)

    def _attempt(self, action: Callable[[Any], Any], text: str) -> None:
        if not text or self.failure is not None:
            return
        try:
            if self._stream is None:
                raise OSError(errno.EBADF, "it is closed")
            action(self._stream)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self.failure = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __eq__(self, other: object) -> bool:  # tqdm compares its file with the standard streams
        return self._stream is (other._stream if isinstance(other, Stream) else other)

    def __hash__(self) -> int:
        return id(self._stream)


def _encodable(text: str, encoding: str | None) -> str:
    """`text`, with replacements for characters that `encoding` lacks."""
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "maskerade_fast.plain").decode(encoding)
    return text


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(_PLAIN.get(c, "?") for c in error.object[error.start : error.end]), error.end


codecs.register_error("maskerade_fast.plain", _plain)
