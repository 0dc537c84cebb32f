"""A journal of likelihoods, with which a run that was killed continues to the same bits.

A run is determined by data, prior, options and seed, except for the likelihoods, which take nearly all of its time, and
for the clock, where there is a time budget. The journal stores both as they come. A run with a journal starts from the
beginning and takes likelihoods and clock readings from the journal as long as it has any; everything else, such as
measures and surrogates, it computes again. So the inner state of a run is never stored, and it may be killed at any
moment.

The file is a `record_file`. The first record has the identity of the run in JSON. Each of the others has a batch:
digest of the mixtures, clock readings before it, the time at its end, arrays of float64. A last record may have the
clock readings after the last batch.
"""

from __future__ import annotations

import contextlib
import hashlib
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
from .._version import __version__, installed_version
from ..errors import DataError
from ..model.gmm import GMMBatch
from .record_file import RecordFile
from .recorder import Evaluate

_MAGIC, _LAYOUT = b"maskerade_fast checkpoint ", 1
_DIGEST = 16
_MOST_HEADER = 2**24
_BATCH, _END = b"B", b"E"


class _Batch(NamedTuple):
    """A record of the journal: `readings` of the clock since the batch before, `end` when it was evaluated."""

    start: int
    digest: bytes
    readings: list[float]
    end: float
    arrays: list[Array]


class Journal:
    """A `Recorder` with a file: it returns the clock readings and likelihoods of the file, then appends new ones.

    Parameters
    ----------
    path : path
        A new file if there is none. No other process may use it until `__exit__`.
    identity : mapping of str to JSON values
        Everything the run's bits depend on, by name. A journal of another identity is refused with the names of what
        differs. If the `seed` is None, the attribute `identity` gets the journal's seed, or a new one.
    extensible : bool
        True if a run with a larger budget begins like one with a smaller budget. The last batch of the journal may then
        be shorter than the batch of the run; it is evaluated anew.

    Raises
    ------
    DataError
        In one line, for a file that is no journal, damaged, of another run, in use, or that cannot be written; also for
        a batch that cannot be written later. The file then has all batches before it.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any], *, extensible: bool = False) -> None:
        self._start = time.perf_counter()
        self.path = Path(path)
        self.identity = dict(identity)
        self.evaluations = 0  # in the file
        self._extensible = extensible
        self._batches = 0
        self._readings: list[float] = []  # of the clock since the last batch
        self._stored_readings: list[float] = []  # of the file, which the run has not read again yet
        self._last_readings: list[float] = []  # of the file, after its last batch
        self._stored: _Batch | None = None  # the next batch of the file
        self._offset = self._last = 0.0
        self._file = RecordFile(self.path, _MAGIC, _LAYOUT)
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        """Close the file; after a run without an error, append the last clock readings first."""
        with contextlib.closing(self._file):
            if kind is None and self._stored is None and self._readings:
                with contextlib.suppress(DataError):  # the result is complete; only times of its history would differ
                    self._append(_END + _packed(self._readings))

    def seconds(self) -> float:
        """Seconds since the start, without the time between sessions, for lost batches and for reading the file."""
        if self._stored_readings:
            reading = self._stored_readings.pop(0)
        elif self._stored is not None:  # a run that ends before the journal does, by its callback or Ctrl-C
            return self._last
        else:
            reading = self._clock()
        self._last = reading
        self._readings.append(reading)
        return reading

    def evaluated(self, mixtures: GMMBatch, grad: bool, evaluate: Evaluate) -> Sequence[Array]:
        """Return the batch of the file at this point of the run, or `evaluate()`, which is appended."""
        digest = _digest(mixtures, grad)
        stored = self._stored
        if stored is not None and self._fits(stored, digest, len(mixtures)):
            self._batches += 1
            self._readings = []
            self._advance()
            return stored.arrays
        try:
            arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in evaluate()]
        except Exception as error:
            error.add_note(f"checkpoint: {self.path} keeps the {self.evaluations} likelihoods of the batches before")
            raise
        content = [_BATCH, digest, _packed(self._readings), struct.pack("<dQ", self._clock(), len(mixtures))]
        for array in arrays:
            content += [struct.pack(f"<B{array.ndim}Q", array.ndim, *array.shape), array.astype("<f8").tobytes()]
        self._append(b"".join(content))
        self._batches += 1
        self.evaluations += len(mixtures)
        self._readings = []
        return arrays

    def _begin(self) -> None:
        """Check all records and go to the first batch; write the identity into a new file."""
        file, self._next = self._file, 0
        header = file.payload(file.first) if file.first else None
        if header is None:  # empty, or cut short before the first batch
            if self.identity.get("seed") is None:
                self.identity["seed"] = np.random.SeedSequence().entropy
            self._append(json.dumps(self._full_identity()).encode())
            self._go_on(0.0)
            return
        self._compare(header)
        self._next = position = file.behind(file.first, header)
        while (payload := file.payload(position)) is not None:
            batch = self._parse(position, payload)
            if batch is None:
                self._last_readings = _unpacked(payload, 1)[0]
                if file.behind(position, payload) != file.size:
                    file.refuse_damage(position)
                break
            self.evaluations += len(batch.arrays[0])
            position = file.behind(position, payload)
        file.end = position
        self._advance()

    def _advance(self) -> None:
        """Go to the next batch of the file; after the last one the clock runs on."""
        before, self._stored = self._stored, None
        if self._next < self._file.end:
            payload = self._file.payload(self._next)
            assert payload is not None
            self._stored = self._parse(self._next, payload)
            assert self._stored is not None
            self._next = self._file.behind(self._next, payload)
            self._stored_readings = list(self._stored.readings)
            return
        self._stored_readings = list(self._last_readings)
        self._go_on(max([before.end if before else 0.0, *self._last_readings]))

    def _clock(self) -> float:
        return self._offset + (time.perf_counter() - self._start)

    def _go_on(self, seconds: float) -> None:
        """Let the clock run on from `seconds`."""
        self._offset, self._start = seconds, time.perf_counter()

    def _fits(self, stored: _Batch, digest: bytes, count: int) -> bool:
        """Whether the file's batch is the run's; False if it is a shorter last one, which is dropped."""
        if stored.digest == digest:
            return True
        length = len(stored.arrays[0])
        if self._extensible and self._next == self._file.end and length < count:
            self._file.end, self._last_readings, self._stored = stored.start, [], None
            self.evaluations -= length
            self._stored_readings = []
            self._go_on(max([stored.end, *self._readings]))
            return False
        if self._extensible and count < length:
            self._file.refuse(f"holds more than this budget asks for: {self.evaluations} likelihoods")
        self._file.refuse(
            f"data, prior and options are this run's, but not batch {self._batches + 1}: was it written on another "
            "CPU model, or by another state of the package?"
        )

    def _parse(self, start: int, payload: bytes) -> _Batch | None:
        """A batch, or None for the last clock readings."""
        try:
            if payload[:1] == _END:
                _unpacked(payload, 1)
                return None
            if payload[:1] != _BATCH:
                raise ValueError(payload[:1])
            readings, place = _unpacked(payload, 1 + _DIGEST)
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
            self._file.refuse_damage(start)
        return _Batch(start, payload[1 : 1 + _DIGEST], readings, end, arrays)

    def _compare(self, header: bytes) -> None:
        """Refuse a file of another identity; take over its seed where the run has none."""
        try:
            stored = json.loads(header) if len(header) <= _MOST_HEADER else None
        except (ValueError, RecursionError):
            stored = None
        if not isinstance(stored, dict):
            self._file.refuse_damage(0)
        if self.identity.get("seed") is None and isinstance(stored.get("seed"), int):
            self.identity["seed"] = stored["seed"]
        own = json.loads(json.dumps(self._full_identity()))
        names = [name for name in {**own, **stored} if own.get(name) != stored.get(name)]
        if names:
            differences = ", ".join(_difference(name, stored.get(name), own.get(name)) for name in names)
            self._file.refuse(f"of another run: {differences}")

    def _append(self, payload: bytes) -> None:
        count = self.evaluations
        self._file.append(payload, f"; it keeps the {count} likelihoods of the batches before" if count else "")
        self._next = self._file.end

    def _full_identity(self) -> dict[str, Any]:
        versions = {name: installed_version(name) or "unknown" for name in ("numpy", "scipy", "numba")}
        return {**self.identity, "version": __version__, **versions, "machine": platform.machine()}


def fingerprint(array: Array) -> str:
    """Digest of shape, dtype and content of an array on the host."""
    array = np.ascontiguousarray(array)
    label = f"{array.shape} {array.dtype.str}".encode()
    return "blake2b " + hashlib.blake2b(label + array.tobytes(), digest_size=_DIGEST).hexdigest()


def described_seed(seed: Any) -> Any:
    """`seed` as a JSON value: an int, None, or a digest of a Generator's state."""
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


def _packed(readings: list[float]) -> bytes:
    return struct.pack(f"<Q{len(readings)}d", len(readings), *readings)


def _unpacked(payload: bytes, place: int) -> tuple[list[float], int]:
    """Readings that were `_packed` at `place`, and the place behind them."""
    (count,) = struct.unpack_from("<Q", payload, place)
    if count > len(payload):
        raise ValueError(count)
    return list(struct.unpack_from(f"<{count}d", payload, place + 8)), place + 8 + 8 * count


def _difference(name: str, stored: Any, own: Any) -> str:
    texts = [shortened(str(value)) for value in (stored, own)]
    if any(text.startswith(("blake2b ", "generator ")) for text in texts):
        return f"{name} differs"
    return f"{name} is {texts[0]} there, {texts[1]} here"
