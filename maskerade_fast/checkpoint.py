"""A journal of likelihoods, from which a run that was killed goes on to the same bits.

A run is determined by data, prior, options and seed, but for two things that it asks of the world: likelihoods, which
take nearly all of its time, and the clock, where there is a time budget. Both are written down as they come. A run that
finds a journal is begun anew and given the answers of the journal for as long as there are any; everything else,
proposals and surrogates, it computes again. So nothing of a run's inner state is ever stored, and every moment is as
good as any other to be killed at.

The file: a line that names the layout, then frames ``length (8 bytes) | CRC-32 of it (4) | payload | BLAKE2b of it
(16)``, little-endian, appended one by one and flushed to the disk. The first says in JSON what the run is of; the
others hold a batch each: digest of the mixtures, clock readings before it, the time at its end, arrays of float64. An
append that was cut short leaves a frame that ends too early, which is dropped; any other fault is damage, and refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import io
import json
import math
import os
import platform
import stat
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ._checks import Array
from ._version import __version__
from .archive import shortened
from .errors import DataError
from .gmm import GMMBatch

try:
    import fcntl
except ImportError:  # not on Windows: two runs on one file are then not told from one
    fcntl = None  # type: ignore[assignment]

_MAGIC, _LAYOUT = b"maskerade_fast checkpoint ", 1
_HEAD, _CHECK = struct.Struct("<QI"), 16
_MOST_HEADER = 2**24
_BATCH, _END = b"B", b"E"

Evaluate = Callable[[], Sequence[Array]]


class Unrecorded:
    """Clock and likelihoods of a run without a checkpoint."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """What `evaluate` returns."""
        return evaluate()

    def __enter__(self) -> Unrecorded:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        pass


class _Batch(NamedTuple):
    """A frame of the journal: `readings` were taken since the batch before, `end` when its likelihoods were there."""

    start: int
    digest: bytes
    readings: list[float]
    end: float
    arrays: list[Array]


class Journal(Unrecorded):
    """Clock and likelihoods of a run with a checkpoint: the journal's for as long as it has any, then new ones.

    Parameters
    ----------
    path : path
        Created if it is not there. Held against other processes until `__exit__`.
    identity : mapping of str to JSON values
        What the run is of; a journal of another identity is refused by the names of what differs. A `seed` of None
        takes the journal's, or a fresh one; `identity` has it then.
    extensible : bool
        True where a run with a larger budget begins as one with a smaller: the last batch of the journal may then be
        shorter than the one that is asked for, and is evaluated anew.

    Raises
    ------
    DataError
        In one line, for a file that is no journal, damaged, of another run, in use, or that cannot be written; also
        later, when a batch cannot be written. The file then has all batches before it.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, extensible: bool = False) -> None:
        super().__init__()
        self.path = Path(path)
        self.identity = dict(identity)
        self.evaluations = 0  # that the file has
        self._extensible = extensible
        self._batches = 0
        self._taken: list[float] = []  # readings since the last batch
        self._given: list[float] = []  # readings of the journal not yet asked for
        self._trailing: list[float] = []  # readings after the last batch
        self._ahead: _Batch | None = None
        self._offset = self._last = 0.0
        try:
            self._file = self._opened()
        except OSError as error:
            self._refuse(f"cannot be written ({error.strerror or error})")
        try:
            self._begin()
        except OSError as error:
            self._file.close()
            self._refuse(f"cannot be read or written ({error.strerror or error})")
        except BaseException:
            self._file.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """Leave the file to others; after a run that ended well with the clock's last readings."""
        with self._file:
            if kind is None and self._ahead is None and self._taken:
                with contextlib.suppress(DataError):  # the result is there; its history would be told otherwise
                    self._append(_END + _readings(self._taken))

    def seconds(self) -> float:
        """Since the start, without what was spent between sessions, on batches lost, and on going through the file."""
        if self._given:
            reading = self._given.pop(0)
        elif self._ahead is not None:  # a run that ends within the journal, by its callback or Ctrl-C
            return self._last
        else:
            reading = self._offset + super().seconds()
        self._last = reading
        self._taken.append(reading)
        return reading

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """What `evaluate` returns, or did when these mixtures came at this point of the run."""
        digest = _digest(mixtures, grad)
        known = self._ahead
        if known is not None and self._fits(known, digest, len(mixtures)):
            self._batches += 1
            self._taken = []
            self._advance()
            return known.arrays
        try:
            arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in evaluate()]
        except Exception as error:
            error.add_note(f"checkpoint: {self.path} keeps the {self.evaluations} likelihoods of the batches before")
            raise
        content = [_BATCH, digest, _readings(self._taken), struct.pack("<d", self._offset + super().seconds())]
        content.append(struct.pack("<Q", len(mixtures)))
        for array in arrays:
            content += [struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape), array.astype("<f8").tobytes()]
        self._append(b"".join(content))
        self._batches += 1
        self.evaluations += len(mixtures)
        self._taken = []
        return arrays

    # ---- going through the file ----

    def _begin(self) -> None:
        """Check all frames, then stand before the first batch; write the header of a new file."""
        size = os.fstat(self._file.fileno()).st_size
        first = self._file.read(len(_MAGIC) + 16)
        line, newline, _ = first.partition(b"\n")
        own = _MAGIC + b"%d" % _LAYOUT
        if not newline and own.startswith(first):  # empty, or cut short within the line
            self._new()
            return
        if not newline or not line.startswith(_MAGIC) or not line[len(_MAGIC) :].isdigit():
            self._refuse("not a checkpoint; it is left as it is")
        if int(line[len(_MAGIC) :]) > _LAYOUT:
            self._refuse("written by a newer maskerade_fast")
        position = len(line) + 1
        header = self._frame(position, size)
        if header is None:  # cut short before the first batch
            self._new()
            return
        self._compare(header)
        position = self._first = position + _HEAD.size + len(header) + _CHECK
        while (payload := self._frame(position, size)) is not None:
            batch = self._parsed(position, payload)
            if batch is None:
                self._trailing = _taken_readings(payload, 1)[0]
                if position + _HEAD.size + len(payload) + _CHECK != size:
                    self._damaged(position)
                break
            self.evaluations += len(batch.arrays[0])
            position += _HEAD.size + len(payload) + _CHECK
        self._end = position
        self._next = self._first
        self._advance()

    def _advance(self) -> None:
        """Stand before the next batch of the file; after the last one the clock goes on by itself."""
        before, self._ahead = self._ahead, None
        if self._next < self._end:
            payload = self._frame(self._next, self._end)
            assert payload is not None
            self._ahead = self._parsed(self._next, payload)
            assert self._ahead is not None
            self._next += _HEAD.size + len(payload) + _CHECK
            self._given = list(self._ahead.readings)
            return
        self._given = list(self._trailing)
        self._go_on(max([before.end if before else 0.0, *self._trailing]))

    def _go_on(self, seconds: float) -> None:
        self._offset, self._start = seconds, time.perf_counter()

    def _fits(self, known: _Batch, digest: bytes, count: int) -> bool:
        """Whether the batch is the one asked for; False if it is cut short and to be made anew."""
        if known.digest == digest:
            return True
        held = len(known.arrays[0])
        if self._extensible and self._next == self._end and held < count:
            self._end, self._trailing, self._ahead = known.start, [], None
            self.evaluations -= held
            self._given = []
            self._go_on(max([known.end, *self._taken]))
            return False
        if self._extensible and count < held:
            self._refuse(f"holds more than this budget asks for: {self.evaluations} likelihoods")
        self._refuse(
            f"data, prior and options are this run's, but not batch {self._batches + 1}: was it written on another "
            "kind of processor, or by another state of the package?"
        )

    def _frame(self, position: int, size: int) -> bytes | None:
        """Payload of the frame at `position`; None where the file ends, be it within the frame."""
        self._file.seek(position)
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        length, check = _HEAD.unpack(head)
        if zlib.crc32(head[:8]) != check or length == 0:
            self._only_zeros(head, position)
            return None
        end = position + _HEAD.size + length + _CHECK
        if end > size:
            return None
        payload, digest = self._file.read(length), self._file.read(_CHECK)
        if hashlib.blake2b(payload, digest_size=_CHECK).digest() != digest:
            if end == size:
                return None  # blocks that the disk never got
            self._damaged(position)
        return payload

    def _only_zeros(self, seen: bytes, position: int) -> None:
        """Where power failed, a file system may have made the file longer and not have filled it."""
        while seen:
            if seen.strip(b"\0"):
                self._damaged(position)
            seen = self._file.read(2**20)

    def _parsed(self, start: int, payload: bytes) -> _Batch | None:
        """A batch, or None for the end's readings."""
        try:
            if payload[:1] == _END:
                _taken_readings(payload, 1)
                return None
            if payload[:1] != _BATCH:
                raise ValueError(payload[:1])
            readings, place = _taken_readings(payload, 1 + _CHECK)
            end, count = struct.unpack_from("<dQ", payload, place)
            place += 16
            arrays = []
            while place < len(payload):
                shape = struct.unpack_from(f"<{payload[place]}Q", payload, place + 1)
                place += 1 + 8 * len(shape)
                arrays.append(np.frombuffer(payload, "<f8", math.prod(shape), place).reshape(shape).astype(np.float64))
                place += 8 * math.prod(shape)
            if len(arrays[0]) != count:
                raise ValueError(count)
        except (ValueError, LookupError, TypeError, OverflowError, struct.error):
            self._damaged(start)
        return _Batch(start, payload[1 : 1 + _CHECK], readings, end, arrays)

    def _compare(self, header: bytes) -> None:
        try:
            found = json.loads(header) if len(header) <= _MOST_HEADER else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._damaged(0)
        if self.identity.get("seed") is None and isinstance(found.get("seed"), int):
            self.identity["seed"] = found["seed"]
        expected = json.loads(json.dumps(self._full_identity()))
        names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
        if names:
            differences = ", ".join(_difference(name, found.get(name), expected.get(name)) for name in names)
            self._refuse(f"of another run: {differences}")

    # ---- writing ----

    def _opened(self) -> io.FileIO:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        file = io.FileIO(os.open(self.path, flags | getattr(os, "O_NONBLOCK", 0), 0o666), "r+b")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            self._refuse("not a file that can be written and read again")
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                self._refuse("in use by another run")
        return file

    def _new(self) -> None:
        """An empty journal, in place of nothing or of one that was cut short before its first batch."""
        if self.identity.get("seed") is None:
            self.identity["seed"] = np.random.SeedSequence().entropy
        self._ahead = None
        self._end = self._first = self._next = 0
        line = _MAGIC + b"%d\n" % _LAYOUT
        self._append(json.dumps(self._full_identity()).encode(), line)
        self._go_on(0.0)

    def _append(self, payload: bytes, before: bytes = b"") -> None:
        """Write a frame behind the last whole one; if that fails the file ends there as it did."""
        head = struct.pack("<Q", len(payload))
        digest = hashlib.blake2b(payload, digest_size=_CHECK).digest()
        content = memoryview(before + head + struct.pack("<I", zlib.crc32(head)) + payload + digest)
        try:
            try:
                self._file.truncate(self._end)
                self._file.seek(self._end)
                written = 0
                while written < len(content):
                    written += self._file.write(content[written:]) or 0
                os.fsync(self._file.fileno())
            except BaseException:  # Ctrl-C too: what is half there would be dropped anyway
                self._file.truncate(self._end)
                raise
        except OSError as error:
            kept = f"; it keeps the {self.evaluations} likelihoods of the batches before" if self.evaluations else ""
            self._refuse(f"cannot be written ({error.strerror or error}){kept}")
        self._end += len(content)
        self._next = self._end

    def _full_identity(self) -> dict[str, Any]:
        versions = {name: _version(name) for name in ("numpy", "scipy", "numba")}
        return {**self.identity, "version": __version__, **versions, "machine": platform.machine()}

    def _damaged(self, position: int) -> NoReturn:
        self._refuse(f"damaged at byte {position}; it is left as it is")

    def _refuse(self, why: str) -> NoReturn:
        raise DataError(f"checkpoint: {self.path}: {why}") from None


def fingerprint(array: Array) -> str:
    """Digest of shape, dtype and content of an array on the host, for an identity."""
    array = np.ascontiguousarray(array)
    label = f"{array.shape} {array.dtype.str}".encode()
    return "blake2b " + hashlib.blake2b(label + array.tobytes(), digest_size=_CHECK).hexdigest()


def described_seed(seed: Any) -> Any:
    """A seed as a JSON value: an int, None, or a digest of a Generator's state."""
    if isinstance(seed, np.random.Generator):
        state = json.dumps(seed.bit_generator.state, sort_keys=True, default=lambda array: array.tolist())
        return "generator " + hashlib.blake2b(state.encode(), digest_size=_CHECK).hexdigest()
    return None if seed is None else int(seed)


def _digest(mixtures: GMMBatch, grad: bool) -> bytes:
    whole = hashlib.blake2b(b"gradient" if grad else b"value", digest_size=_CHECK)
    for array in (mixtures.offsets, mixtures.weights, mixtures.means, mixtures.scales, mixtures.noise_variances):
        if array is not None:
            whole.update(f"{array.shape} {array.dtype.str}".encode() + np.ascontiguousarray(array).tobytes())
    return whole.digest()


def _readings(readings: list[float]) -> bytes:
    return struct.pack(f"<Q{len(readings)}d", len(readings), *readings)


def _taken_readings(payload: bytes, place: int) -> tuple[list[float], int]:
    (count,) = struct.unpack_from("<Q", payload, place)
    if count > len(payload):
        raise ValueError(count)
    return list(struct.unpack_from(f"<{count}d", payload, place + 8)), place + 8 + 8 * count


def _difference(name: str, found: Any, expected: Any) -> str:
    texts = [shortened(str(value)) for value in (found, expected)]
    if any(text.startswith(("blake2b ", "generator ")) for text in texts):
        return f"{name} differs"
    return f"{name} is {texts[0]} there, {texts[1]} here"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
