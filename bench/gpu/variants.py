"""What could be chosen otherwise in the kernels and in how they are launched, as data; bench/gpu/compare.py times it.

A new variant is an entry of `VARIANTS`, say

    Variant("panels of 512 threads", "K4 N=512, B=256", constants={"likelihood.threads_of": lambda defines: 512}),
    Variant("an idea behind #ifdef MF_IDEA", "K2 N=144, B=1000", defines={"MF_IDEA": 1}),
    Variant("4 stages", "K2+K3 N=1503, B=100", texts=[("products.cuh", "STAGES = 3;", "STAGES = 4;")],
            constants={"_blocked.STAGES": 4}),

and one of `SWEEPS` is a product of choices. `case` is the name of a row of bench/gpu/rows.py, or of one in `CASES`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from maskerade_fast.backends.gpu import _loader, likelihood

from . import ideas
from .rows import Case, all_cases, gradient_case, likelihood_case

BACKEND = "maskerade_fast.backends.gpu"


class Variant(NamedTuple):
    """Changes that belong together, and the row that they are timed on."""

    name: str
    case: str = ""
    constants: Mapping[str, Any] = {}
    """Values for names in modules of the backend, as "module.NAME"."""
    texts: Sequence[tuple[str, str, str]] = ()
    """File of kernels/, a text that it has exactly once, and what stands there instead."""
    defines: Mapping[str, int] = {}
    """Macros for all sources."""
    same_bits: bool = True
    """Whether results must have the bits of the default; else they are held to the row's tolerance alone."""

    def __add__(self, other: Any) -> Variant:
        """Both together, on the case of `self`."""
        return Variant(
            f"{self.name}, {other.name}",
            self.case,
            {**self.constants, **other.constants},
            [*self.texts, *other.texts],
            {**self.defines, **other.defines},
            self.same_bits and other.same_bits,
        )


class Sweep(NamedTuple):
    """All combinations of one choice from each of `choices`, where None is the default, on one row."""

    name: str
    case: str
    choices: Sequence[Sequence[Variant | None]]

    def combinations(self) -> list[tuple[Variant, ...]]:
        """What each combination changes; those of fewest changes first, without that of none."""
        every = itertools.product(*([None, *choice] for choice in self.choices))
        chosen = [tuple(change for change in combination if change is not None) for combination in every]
        return sorted(filter(None, chosen), key=len)

    def together(self, changes: tuple[Variant, ...]) -> Variant:
        return functools.reduce(lambda a, b: a + b, changes)._replace(case=self.case)


def regimes_with(**changes: Any) -> Callable[..., Any]:
    """`likelihood.regimes_of` with other entries."""
    chosen = likelihood.regimes_of
    return lambda *args: chosen(*args)._replace(**changes)


def pair_blocks(text: str, count: int) -> tuple[str, str, str]:
    return ("distances.cuh", text, f"{text.rsplit(' ', 1)[0]} {count}")


SMALL, SMALL_GRADIENT = "K2+K3 N=144, B=1000", "K4 N=144, B=1000"
MIDDLE, MIDDLE_GRADIENT, LARGE = "K2+K3 N=512, B=256", "K4 N=512, B=256", "K2+K3 N=1503, B=100"
PAIRS, PAIRS_5, GRAM, MOMENTS = "K1 1000x1000, D=1", "K1 1000x1000, D=5", "K2 N=144, B=1000", "K5 h=300, n*=150"

CASES = [likelihood_case(256, 500, 3), likelihood_case(384, 400, 3), gradient_case(640, 128, 8)]
"""Rows for variants alone: sizes about which the way of a likelihood changes."""
DRY_POINTS = {likelihood_case: {144: 40, 256: 120}, gradient_case: {144: 40, 512: 120, 640: 120, 1000: 416}}
"""Points that go the same way on the emulator's card; 336 where none are given."""

ONE_D = "D == 1 && form == ENERGY && !mixed ? 11"
TILE_B_32 = Variant(
    "TILE_B 32",
    constants={"distances.TILE_B": 32, "hyperkernel.TILE_B": 32},
    texts=[("distances.cuh", "TILE_B = 16;", "TILE_B = 32;")],
)
PAIR_THREADS_128 = Variant(
    "PAIR_THREADS 128",
    constants={"distances.PAIR_THREADS": 128, "hyperkernel.PAIR_THREADS": 128},
    texts=[("distances.cuh", "PAIR_THREADS = 64;", "PAIR_THREADS = 128;")],
)
# Fewer stages leave less shared memory than a panel's rows and its square take, where slices are no wider
STAGES_4 = Variant("STAGES 4", constants={"_blocked.STAGES": 4}, texts=[("products.cuh", "STAGES = 3;", "STAGES = 4;")])
SLICE_32 = Variant(
    "SLICE 32, STAGES 2",
    constants={"_blocked.STAGES": 2, "_blocked.SLICE_STRIDE": 36},
    texts=[("products.cuh", "STAGES = 3;", "STAGES = 2;"), ("products.cuh", "SLICE = 16;", "SLICE = 32;")],
)
LOW = Variant("HEIGHT 64 alone", constants={"_blocked.TALL": 64})
# What the number of points decides: the way of a likelihood
PANELS = {"likelihood.LARGEST_PANEL": 704, "likelihood.LARGEST_PANEL_GRADIENT": 1024}
BLOCKED = {"likelihood.LARGEST_PANEL": 0, "likelihood.LARGEST_PANEL_GRADIENT": 0}

VARIANTS = [
    *(Variant("coefficients in constant memory", case, texts=ideas.CONSTANT_MEMORY) for case in (SMALL, GRAM)),
    Variant("interior tiles without branches", SMALL, texts=ideas.INTERIOR_TILES),
    Variant("columns through shared memory", SMALL, texts=ideas.SHARED_COLUMNS),
    *(Variant("all three ideas", case, texts=ideas.ALL) for case in (SMALL, SMALL_GRADIENT, MIDDLE)),
    Variant("MF_BLOCK 128", SMALL, {"likelihood.small_block": lambda n, grad, threads: 128}),
    Variant("MF_BLOCK 512", SMALL, {"likelihood.small_block": lambda n, grad, threads: 512}),
    Variant("TILE_BLOCKS 2", GRAM, texts=[("gram.cu", "TILE_BLOCKS = 3;", "TILE_BLOCKS = 2;")]),
    Variant("TILE_BLOCKS 4", GRAM, texts=[("gram.cu", "TILE_BLOCKS = 3;", "TILE_BLOCKS = 4;")]),
    Variant("PAIR_RESIDENT 3", MOMENTS, texts=[("prediction.cu", "PAIR_RESIDENT = 2;", "PAIR_RESIDENT = 3;")]),
    LOW._replace(case=MIDDLE),
    STAGES_4._replace(case=MIDDLE),
    SLICE_32._replace(case=MIDDLE),
    Variant("WIDE_RESIDENT 1", MIDDLE, texts=[("likelihood.cu", "WIDE_RESIDENT = 2;", "WIDE_RESIDENT = 1;")]),
    Variant("panels up to N=512", MIDDLE, PANELS, same_bits=False),
    Variant("blocked from N=256", "K2+K3 N=256, B=500", BLOCKED, same_bits=False),
    Variant("panels up to N=384", "K2+K3 N=384, B=400", PANELS, same_bits=False),
    # the sums of a gradient go over the warps of a block
    Variant("MF_BLOCK 128", SMALL_GRADIENT, {"likelihood.small_block": lambda n, grad, threads: 128}, same_bits=False),
    Variant("MF_BLOCK 512", SMALL_GRADIENT, {"likelihood.small_block": lambda n, grad, threads: 512}, same_bits=False),
    Variant("blocked from N=512", MIDDLE_GRADIENT, BLOCKED, same_bits=False),
    Variant("256 threads", MIDDLE_GRADIENT, {"likelihood.threads_of": lambda defines: 256}, same_bits=False),
    Variant("blocked from N=640", "K4 N=640, B=128", BLOCKED, same_bits=False),
    Variant("panels up to N=1000", "K4 N=1000, B=64", PANELS, same_bits=False),
    Variant("PAIR_BLOCKS 5", PAIRS_5, texts=[("distances.cuh", "(mixed ? 6 : 7)", "(mixed ? 6 : 5)")]),
    Variant("PAIR_BLOCKS 8", PAIRS_5, texts=[("distances.cuh", "(mixed ? 6 : 7)", "(mixed ? 6 : 8)")]),
    TILE_B_32._replace(case=PAIRS_5),
    Variant("columns of a block 128", LARGE, {"likelihood.regimes_of": regimes_with(width=128)}, same_bits=False),
    Variant("columns of a block 512", LARGE, {"likelihood.regimes_of": regimes_with(width=512)}, same_bits=False),
]
"""Neighbours share a row: its problem is made once."""

SWEEPS = [
    Sweep(
        "tiles of distances",
        PAIRS,
        [
            [TILE_B_32],
            [PAIR_THREADS_128],
            [Variant(f"PAIR_BLOCKS {k}", texts=[pair_blocks(ONE_D, k)]) for k in (8, 14)],
        ],
    ),
    Sweep("products of the blocked way", LARGE, [[LOW], [STAGES_4, SLICE_32]]),
]


def label(variant: Variant) -> str:
    return f"{variant.case}: {variant.name}"


def case_of(name: str, dry: bool) -> Case:
    """The row of a name; in a dry run one of its kind that goes the same way through the backend."""
    found = {case.name: case for case in all_cases(False) + CASES}
    if name not in found:
        raise LookupError(f"no row is called {name!r}")
    case = found[name]
    if not dry:
        return case
    sizes = case.sizes | {"B": min(case.sizes.get("B", 0), 12), "h": 10, "M": 3}
    if "N" in sizes:
        points = DRY_POINTS[gradient_case if case.kernels.endswith("K4") else likelihood_case]
        sizes |= {"N": points.get(sizes["N"], 336), "B": 2}
    return case._replace(sizes={key: sizes[key] for key in case.sizes})


@contextlib.contextmanager
def applied(variant: Variant) -> Iterator[None]:
    """The backend with the changes of `variant`."""
    values: dict[tuple[Any, str], Any] = {}
    for path, value in variant.constants.items():
        module_name, _, name = path.partition(".")
        module = importlib.import_module(f"{BACKEND}.{module_name}")
        if not hasattr(module, name):
            raise LookupError(f"{variant.name}: the backend has no {path}")
        values[module, name] = value
    if variant.texts or variant.defines:
        folder, kernel = _instances(label(variant), tuple(variant.texts), tuple(sorted(variant.defines.items())))
        values |= {(_loader, "source_folder"): lambda: folder, (_loader, "_kernel"): kernel}
        values[_loader, "_binary"] = lambda device, source, defines: None
    before = {(module, name): getattr(module, name) for module, name in values}
    try:
        for (module, name), value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


_kernel = _loader._kernel  # the backend's own, whatever stands in its place when a variant is applied


@functools.cache
def _instances(
    name: str, texts: tuple[tuple[str, str, str], ...], defines: tuple[tuple[str, int], ...]
) -> tuple[Path, Callable[..., Any]]:
    """The folder of a variant's sources, and what compiles its kernels, each once."""
    folder = changed_sources(name, texts) if texts else _loader.source_folder()

    @functools.cache
    def kernel(device: int, source: str, entry: str, own: tuple[tuple[str, int], ...]) -> Any:
        return _kernel.__wrapped__(device, source, entry, tuple(sorted({**dict(own), **dict(defines)}.items())))

    return folder, kernel


def changed_sources(name: str, texts: Sequence[tuple[str, str, str]]) -> Path:
    """A copy of kernels/ with the changes; ValueError where a text is not there exactly once."""
    folder = Path(tempfile.mkdtemp(prefix="kernels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path in _loader.source_folder().glob("*.cu*"):
        shutil.copy(path, folder)
    for file, old, new in texts:
        text = (folder / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise ValueError(f"{name}: {file} has {old!r} {text.count(old)} times, expected once")
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    return folder
