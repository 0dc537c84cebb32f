"""Ragged batches of spectral mixtures: mixtures of different sizes side by side in flat arrays.

Mixture b owns the components ``offsets[b]:offsets[b + 1]`` of `weights` (J,), `means` (J, D) and `scales`
(J, D); mathematics.md section 1 gives its spectral density and kernel.
The arrays of components are NumPy's or CuPy's; `offsets` are NumPy's always, since sizes and layouts are decided on
the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array, float_array, is_float32, one_of, plain_array
from .._containers import container
from ..backends import array_namespace, is_cupy, on_their_device, to_device, to_host

Mixture = tuple[Any, Any, Any]

_LARGEST = 1e300  # of any number: small multiples are still finite
MOST_MASS = 1e150  # its square is finite
_PARTS = ("weights", "means", "scales")
_NO_LESS = "a finite number >= 0"


@dataclass(frozen=True, eq=False)
class GMMBatch:
    """B spectral mixtures of any sizes; checked once, when built.

    Parameters
    ----------
    offsets : array of int64, shape (B + 1,)
        Starts at 0 and increases: every mixture has at least one component. Kept as a NumPy array.
    weights : array, shape (J,)
        Non-negative, of a total mass up to 1e150; units of y squared. ``J = offsets[-1]``.
    means, scales : array, shape (J, D)
        Centres and standard deviations of the spectral components, in cycles per unit of x; scales >= 0. No number is
        beyond 1e300.
    noise_variances : array, shape (B,), optional
        One noise variance a mixture, units of y squared.

    Raises
    ------
    ValueError
        For inconsistent shapes, negative weights, scales or noise, NaN, infinity or numbers so large that squares of
        masses would overflow, naming the mixture.
    TypeError
        For arrays that are not real numbers, or that live on different devices.

    Notes
    -----
    float32 stays float32 if `weights`, `means` and `scales` all are; otherwise everything is float64. CuPy arrays stay
    on their card, where they are checked.

    The batch owns its arrays, copies of those that it was built from: what happens to these later does not change it.
    Its own arrays stay writable, since read-only ones would be copied by every operation and refused by DLPack; do not
    write to them.
    """

    offsets: Array
    weights: Array
    means: Array
    scales: Array
    noise_variances: Array | None = None

    if TYPE_CHECKING:  # array-likes become arrays

        def __init__(self, offsets: Any, weights: Any, means: Any, scales: Any, noise_variances: Any = None): ...

    @on_their_device
    def __post_init__(self) -> None:
        array_namespace(*self._arrays())  # refuses a mixture of devices
        offsets = _checked_offsets(self.offsets)
        parts = [plain_array(getattr(self, name), name) for name in _PARTS]
        dtype = np.float32 if all(map(is_float32, parts)) else np.float64
        weights = float_array(parts[0], "weights", ndim=1, dtype=dtype, allow="any", own=True)
        means = float_array(parts[1], "means", ndim=2, dtype=dtype, allow="any", own=True)
        scales = float_array(parts[2], "scales", ndim=2, dtype=dtype, allow="any", own=True)
        if means.shape[1] < 1:
            raise ValueError(f"means: shape {means.shape}, expected (J, D) with D >= 1")
        for name, array in (("weights", weights), ("means", means), ("scales", scales)):
            if array.shape != ((len(weights),) if array.ndim == 1 else means.shape) or len(array) != offsets[-1]:
                raise ValueError(
                    f"{name}: shape {array.shape}, expected {offsets[-1]} components as offsets[-1] says, "
                    "and equal shapes of means and scales"
                )
        limit = np.dtype(dtype).type(min(_LARGEST, float(np.finfo(dtype).max)))
        _check_entries(abs(means) <= limit, means, "means", offsets, "a finite number")
        for name, array in (("weights", weights), ("scales", scales)):
            good = (array >= 0) & (array <= limit)  # False for NaN
            _check_entries(good, array, name, offsets, _NO_LESS)
        _check_mass(weights, offsets)
        noise = self.noise_variances
        if noise is not None:
            noise = float_array(noise, "noise_variances", ndim=1, dtype=dtype, allow="any", own=True)
            if noise.shape != (len(offsets) - 1,):
                raise ValueError(f"noise_variances: shape {noise.shape}, expected ({len(offsets) - 1},)")
            bad = ~((noise >= 0) & (noise <= limit))
            if bad.any():
                b = int(bad.argmax())
                value = to_host(noise[b])[()]
                raise ValueError(f"noise_variances of mixture {b}: {value}, expected {_within(_NO_LESS, value)}")
        values = (offsets, weights, means, scales, noise)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def trusted(
        cls, offsets: Array, weights: Array, means: Array, scales: Array, noise_variances: Array | None = None
    ) -> GMMBatch:
        """Build without checks, from arrays the package itself made."""
        batch = object.__new__(cls)
        values = (offsets, weights, means, scales, noise_variances)
        for name, value in zip(cls.__dataclass_fields__, values, strict=True):
            object.__setattr__(batch, name, value)
        return batch

    @classmethod
    @on_their_device
    def from_list(cls, mixtures: Sequence[Mixture], noise_variances: Any = None) -> GMMBatch:
        """Build from ``[(weights (n,), means (n, D), scales (n, D)), ...]``; for D = 1 also ``(n,)``.

        Raises
        ------
        ValueError
            If a mixture's arrays disagree in length, or mixtures in D; if the list is empty (D would be
            unknown: build an empty batch from arrays).
        """
        if len(mixtures) == 0:
            raise ValueError("mixtures: empty, expected at least one (weights, means, scales)")
        parts: dict[str, list[Array]] = {name: [] for name in _PARTS}
        D = 0
        for b, mixture in enumerate(mixtures):
            if len(mixture) != 3:
                raise ValueError(f"mixtures[{b}]: {len(mixture)} entries, expected (weights, means, scales)")
            arrays = [plain_array(a, f"mixtures[{b}]: {name}") for name, a in zip(_PARTS, mixture, strict=True)]
            shape = arrays[0].shape
            D = D or (arrays[1].shape[1] if arrays[1].ndim == 2 else 1)
            for name, array in zip(_PARTS, arrays, strict=True):
                columns = array.reshape(-1, 1) if name != "weights" and array.ndim == 1 else array
                if len(shape) != 1 or columns.shape != (shape if name == "weights" else (*shape, D)):
                    raise ValueError(
                        f"mixtures[{b}]: {name} of shape {array.shape} beside weights of shape {shape}, "
                        f"expected means and scales (n, {D}) beside weights (n,)"
                    )
                parts[name].append(columns)
        offsets = np.cumsum([0] + [len(w) for w in parts["weights"]], dtype=np.int64)
        xp = array_namespace(*(array for part in parts.values() for array in part))
        joined = {name: xp.concatenate(part) for name, part in parts.items()}
        return cls(offsets, **joined, noise_variances=noise_variances)

    @property
    def n_mixtures(self) -> int:
        """B."""
        return len(self.offsets) - 1

    @property
    def n_dims(self) -> int:
        """D."""
        return int(self.means.shape[1])

    @property
    def n_components(self) -> Array:
        """Components of each mixture, shape (B,); a NumPy array, as `offsets`."""
        return np.diff(self.offsets)

    @property
    def mass(self) -> Array:
        """Total weight of each mixture, k(0), shape (B,)."""
        return segment_sums(self.weights, self.offsets)

    @property
    @on_their_device
    def owner(self) -> Array:
        """Index of the mixture each component belongs to, shape (J,)."""
        owner: Array = array_namespace(self.weights).asarray(np.repeat(np.arange(self.n_mixtures), self.n_components))
        return owner

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64 or float32."""
        return self.weights.dtype

    def __len__(self) -> int:
        return self.n_mixtures

    def __iter__(self) -> Iterator[GMMBatch]:
        return (self[b] for b in range(len(self)))

    def __getitem__(self, index: Any) -> GMMBatch:
        """``g[i]`` is a batch of one; a slice, index array or mask picks several, in that order."""
        index = to_host(index) if is_cupy(index) else index
        rows = np.atleast_1d(np.arange(self.n_mixtures)[index])
        if rows.ndim > 1:
            raise IndexError(f"index: shape {rows.shape}, expected one dimension")
        return self._take(rows)

    def __repr__(self) -> str:
        sizes = f"n_mixtures={len(self)}, n_components={len(self.weights)}, n_dims={self.n_dims}"
        return f"GMMBatch({sizes}, dtype={self.dtype})"

    @on_their_device
    def _take(self, rows: Array) -> GMMBatch:
        counts = self.n_components[rows]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - self.offsets[:-1][rows], counts)
        xp = array_namespace(self.weights)
        flat, rows = xp.asarray(flat), xp.asarray(rows)
        noise = None if self.noise_variances is None else self.noise_variances[rows]
        return GMMBatch.trusted(offsets, self.weights[flat], self.means[flat], self.scales[flat], noise)

    def to(self, device: str) -> GMMBatch:
        """The same batch on "cpu" or "gpu" (the current one); itself if it is there already.

        Raises
        ------
        BackendUnavailableError
            For "gpu" where there is none, with the cause.
        """
        if one_of(device, "device", ("cpu", "gpu")) == ("gpu" if is_cupy(self.weights) else "cpu"):
            return self
        arrays: list[Any] = [None if a is None else to_device(a, device) for a in self._arrays()]
        return GMMBatch.trusted(self.offsets, *arrays)

    def _arrays(self) -> tuple[Any, ...]:
        return (self.weights, self.means, self.scales, self.noise_variances)


@container
class GMMGradient:
    """Gradient of a scalar (or of one scalar a mixture) with respect to the arrays of a GMMBatch.

    `weights` (J,), `means` (J, D) and `scales` (J, D) line up with the batch; `noise_variance`, (B,) or
    (B, N), is None where there is none to differentiate in.
    """

    weights: Array
    means: Array
    scales: Array
    noise_variance: Array | None = None

    def to(self, device: str) -> GMMGradient:
        """The same gradient on "cpu" or "gpu"; see `GMMBatch.to`."""
        parts = (self.weights, self.means, self.scales, self.noise_variance)
        arrays: list[Any] = [None if a is None else to_device(a, device) for a in parts]
        return GMMGradient(*arrays)


@on_their_device
def concat(batches: Sequence[GMMBatch]) -> GMMBatch:
    """Join batches of equal D into one, in order.

    Raises
    ------
    ValueError
        If the list is empty, if D differs, or if only some batches carry noise variances.
    TypeError
        If some batches live on a GPU and some do not.
    """
    batches = list(batches)
    if not batches:
        raise ValueError("batches: empty, expected at least one GMMBatch")
    if len({g.n_dims for g in batches}) > 1:
        raise ValueError(f"batches: dimensions {[g.n_dims for g in batches]}, expected equal ones")
    if len({g.noise_variances is None for g in batches}) > 1:
        raise ValueError("batches: some carry noise_variances and some do not, expected all or none")
    xp = array_namespace(*(g.weights for g in batches))
    weights, means, scales = (xp.concatenate([getattr(g, name) for g in batches]) for name in _PARTS)
    noise = [g.noise_variances for g in batches if g.noise_variances is not None]
    offsets = np.cumsum(np.concatenate([[0], *(g.n_components for g in batches)]), dtype=np.int64)
    return GMMBatch.trusted(offsets, weights, means, scales, xp.concatenate(noise) if noise else None)


@on_their_device
def segment_sums(values: Array, offsets: Array) -> Array:
    """Sums of `values` (J,) between successive `offsets` (B + 1,), a NumPy array; no segment is empty.

    Every sum is taken by itself: its bits do not depend on the other segments.
    """
    if not is_cupy(values):
        return np.add.reduceat(values, offsets[:-1]) if len(values) else np.zeros(len(offsets) - 1, values.dtype)
    xp, counts = array_namespace(values), np.diff(offsets)
    total: Array = xp.zeros(len(counts), values.dtype)
    padded = xp.concatenate([values, xp.zeros(1, values.dtype)])
    longest = int(counts.max(initial=0))
    # Some releases of CuPy have no add.reduceat. Some rows of indices at a time cross the bus, of one entry of
    # every segment each, together no more than `values` unless that is less than a row.
    rows = max(1, len(values) // max(1, len(counts)))
    for first in range(0, longest, rows):
        k = np.arange(first, min(first + rows, longest))[:, None]
        entries = padded[xp.asarray(np.where(k < counts, offsets[:-1] + k, len(values)))]
        for row in entries:
            total += row
    return total


def _checked_offsets(value: Any) -> Array:
    offsets = np.asarray(to_host(value))
    if offsets.ndim != 1 or len(offsets) < 1:
        raise ValueError(f"offsets: shape {offsets.shape}, expected (B + 1,)")
    if offsets.dtype.kind not in "iu":
        raise TypeError(f"offsets: dtype {offsets.dtype}, expected integers")
    offsets = np.array(offsets, dtype=np.int64)
    if offsets[0] != 0:
        raise ValueError(f"offsets[0]: {offsets[0]}, expected 0")
    counts = np.diff(offsets)
    if (counts < 1).any():
        b = int(np.argmax(counts < 1))
        raise ValueError(f"offsets: mixture {b} has {counts[b]} components, expected at least 1")
    return offsets


def _check_mass(weights: Array, offsets: Array) -> None:
    """ValueError naming the first mixture whose mass is so large that its square overflows."""
    with np.errstate(over="ignore"):
        if not len(weights) or float(weights.astype(np.float64, copy=False).sum()) <= MOST_MASS:
            return
        mass = to_host(segment_sums(weights.astype(np.float64, copy=False), offsets))
    if (mass > MOST_MASS).any():
        b = int(np.argmax(mass > MOST_MASS))
        raise ValueError(
            f"weights of mixture {b}: a total of {mass[b]:.3g}, expected at most {MOST_MASS:g}, as squares would "
            "overflow; rescale y"
        )


def _check_entries(good: Array, array: Array, name: str, offsets: Array, expected: str) -> None:
    """Raise ValueError naming mixture, component and dimension of the first entry that is not `good`."""
    if good.all():
        return
    array, good = to_host(array), to_host(good)
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    b = int(np.searchsorted(offsets, where[0], side="right")) - 1
    place = f"mixture {b}, component {where[0] - offsets[b]}"
    if array.ndim > 1 and array.shape[1] > 1:
        place += f", dimension {where[1]}"
    raise ValueError(f"{name} of {place}: {array[where]}, expected {_within(expected, array[where])}")


def _within(expected: str, value: Any) -> str:
    """`expected`, with the bound where a `value` is beyond it."""
    return f"{expected}, up to {_LARGEST:g}" if _LARGEST < abs(value) < np.inf else expected
