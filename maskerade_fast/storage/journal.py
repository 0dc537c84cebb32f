"""A journal of likelihoods, from which a run that was killed goes on to the same bits.

A run is determined by data, prior, options and seed, but for two things that it asks of the world: likelihoods, which
take nearly all of its time, and the clock, where there is a time budget. Both are written down as they come. A run that
finds a journal is begun anew and given the answers of the journal for as long as there are any; everything else,
proposals and surrogates, it computes again. So nothing of a run's inner state is ever stored, and every moment is as
good as any other to be killed at.

The file is one of `frames`: the first says in JSON what the run is of; the others hold a batch each: digest of the
mixtures, clock readings before it, the time at its end, arrays of float64; a last one may hold the last readings.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from .._checks import Array
from .._text import shortened
from .._version import __version__
from ..errors import DataError
from ..model.gmm import GMMBatch
from .record_file import FrameFile
from .recorder import Evaluate

_MAGIC, _LAYOUT = b"maskerade_fast checkpoint ", 1
_DIGEST = 16
_MOST_HEADER = 2**24
_BATCH, _END = b"B", b"E"


class _Batch(NamedTuple):
    """A frame of the journal: `readings` were taken since the batch before, `end` when its likelihoods were there."""

    start: int
    digest: bytes
    readings: list[float]
    end: float
    arrays: list[Array]


class Journal:
    """The `Recorder` of a run with a checkpoint: what the file has, clock and likelihoods, then new ones.

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
        self._start = time.perf_counter()
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
        self._frames = FrameFile(self.path, _MAGIC, _LAYOUT)
        try:
            self._begin()
        except BaseException:
            self._frames.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """Leave the file to others; after a run that ended well with the clock's last readings."""
        with contextlib.closing(self._frames):
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
            reading = self._clock()
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
        content = [_BATCH, digest, _readings(self._taken), struct.pack("<d", self._clock())]
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
        frames, self._next = self._frames, 0
        header = frames.payload(frames.first) if frames.first else None
        if header is None:  # nothing there, or cut short before the first batch
            if self.identity.get("seed") is None:
                self.identity["seed"] = np.random.SeedSequence().entropy
            self._append(json.dumps(self._full_identity()).encode())
            self._go_on(0.0)
            return
        self._compare(header)
        self._next = position = frames.behind(frames.first, header)
        while (payload := frames.payload(position)) is not None:
            batch = self._parsed(position, payload)
            if batch is None:
                self._trailing = _taken_readings(payload, 1)[0]
                if frames.behind(position, payload) != frames.size:
                    frames.damaged(position)
                break
            self.evaluations += len(batch.arrays[0])
            position = frames.behind(position, payload)
        frames.end = position
        self._advance()

    def _advance(self) -> None:
        """Stand before the next batch of the file; after the last one the clock goes on by itself."""
        before, self._ahead = self._ahead, None
        if self._next < self._frames.end:
            payload = self._frames.payload(self._next)
            assert payload is not None
            self._ahead = self._parsed(self._next, payload)
            assert self._ahead is not None
            self._next = self._frames.behind(self._next, payload)
            self._given = list(self._ahead.readings)
            return
        self._given = list(self._trailing)
        self._go_on(max([before.end if before else 0.0, *self._trailing]))

    def _clock(self) -> float:
        return self._offset + (time.perf_counter() - self._start)

    def _go_on(self, seconds: float) -> None:
        self._offset, self._start = seconds, time.perf_counter()

    def _fits(self, known: _Batch, digest: bytes, count: int) -> bool:
        """Whether the batch is the one asked for; False if it is cut short and to be made anew."""
        if known.digest == digest:
            return True
        held = len(known.arrays[0])
        if self._extensible and self._next == self._frames.end and held < count:
            self._frames.end, self._trailing, self._ahead = known.start, [], None
            self.evaluations -= held
            self._given = []
            self._go_on(max([known.end, *self._taken]))
            return False
        if self._extensible and count < held:
            self._frames.refuse(f"holds more than this budget asks for: {self.evaluations} likelihoods")
        self._frames.refuse(
            f"data, prior and options are this run's, but not batch {self._batches + 1}: was it written on another "
            "kind of processor, or by another state of the package?"
        )

    def _parsed(self, start: int, payload: bytes) -> _Batch | None:
        """A batch, or None for the end's readings."""
        try:
            if payload[:1] == _END:
                _taken_readings(payload, 1)
                return None
            if payload[:1] != _BATCH:
                raise ValueError(payload[:1])
            readings, place = _taken_readings(payload, 1 + _DIGEST)
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
            self._frames.damaged(start)
        return _Batch(start, payload[1 : 1 + _DIGEST], readings, end, arrays)

    def _compare(self, header: bytes) -> None:
        try:
            found = json.loads(header) if len(header) <= _MOST_HEADER else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._frames.damaged(0)
        if self.identity.get("seed") is None and isinstance(found.get("seed"), int):
            self.identity["seed"] = found["seed"]
        expected = json.loads(json.dumps(self._full_identity()))
        names = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
        if names:
            differences = ", ".join(_difference(name, found.get(name), expected.get(name)) for name in names)
            self._frames.refuse(f"of another run: {differences}")

    def _append(self, payload: bytes) -> None:
        count = self.evaluations
        self._frames.append(payload, f"; it keeps the {count} likelihoods of the batches before" if count else "")
        self._next = self._frames.end

    def _full_identity(self) -> dict[str, Any]:
        versions = {name: _version(name) for name in ("numpy", "scipy", "numba")}
        return {**self.identity, "version": __version__, **versions, "machine": platform.machine()}


def fingerprint(array: Array) -> str:
    """Digest of shape, dtype and content of an array on the host, for an identity."""
    array = np.ascontiguousarray(array)
    label = f"{array.shape} {array.dtype.str}".encode()
    return "blake2b " + hashlib.blake2b(label + array.tobytes(), digest_size=_DIGEST).hexdigest()


def described_seed(seed: Any) -> Any:
    """A seed as a JSON value: an int, None, or a digest of a Generator's state."""
    if isinstance(seed, np.random.Generator):
        state = json.dumps(seed.bit_generator.state, sort_keys=True, default=lambda array: array.tolist())
        return "generator " + hashlib.blake2b(state.encode(), digest_size=_DIGEST).hexdigest()
    return None if seed is None else int(seed)


def _digest(mixtures: GMMBatch, grad: bool) -> bytes:
    whole = hashlib.blake2b(b"gradient" if grad else b"value", digest_size=_DIGEST)
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
