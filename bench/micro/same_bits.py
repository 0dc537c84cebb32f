"""Do two states of the package give the same bits? ``python -m bench.micro.same_bits d6d6d07``

Both recipes, with and without a checkpoint, finished, interrupted and stopped by a callback, on one to three inputs, on
and off a grid, with every trend, on the CPU and on the emulated GPU; then predictions, intervals, kernels, spectra and
what is saved; and every public operation (`tests/operations.py`). The commit is checked out into a temporary folder,
and a process for each state, with a cache of its own, writes its arrays; those of this working tree are compared with
them by their bytes. A journal written by the commit must also carry the run of this tree to the same bits.

Only clocks may differ. Machine code is compiled for the machine at hand, so both states run on the same one, each with
the operations and the emulator of its own tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]  # the other state may have no package `bench` to import it from
_BUDGETS = {"cpu": 260, "gpu": 60}


def problems() -> Iterator[tuple[str, np.ndarray, np.ndarray, dict[str, Any]]]:
    """Name, X, y, and options of `marginalise`."""
    rng = np.random.default_rng(3)
    grid = np.linspace(2.0, 9.0, 40)
    scattered = np.sort(rng.uniform(-1.0, 4.0, 26))
    plane = rng.uniform(size=(24, 2))
    space = rng.uniform(size=(20, 3))
    yield "grid", grid, 40.0 + 3.0 * np.sin(5.0 * grid) + 0.2 * rng.normal(size=40), {"max_components": 3}
    yield "scattered", scattered, np.cos(3.0 * scattered) + scattered, {"trend": "none", "noise_variance": 0.01}
    yield "plane", plane, np.sin(6.0 * plane @ [1.0, 2.0]), {"trend": "constant", "max_components": 2}
    yield "space", space, space @ [1.0, -1.0, 2.0] + 0.1 * rng.normal(size=20), {"standardise": False}


def recipes() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and options of every recipe."""
    yield "laplace", {"proposals": "laplace"}
    yield "laplace-informed", {"proposals": "laplace", "acquisition": "uncertainty"}
    yield "prior", {"proposals": "prior", "initial": 30}
    yield "prior-random", {"proposals": "prior", "acquisition": "random", "initial": 30}


class Stop:
    """A callback that ends a run, or interrupts it, at its third row."""

    def __init__(self, interrupt: bool) -> None:
        self.rows, self.interrupt = 0, interrupt

    def __call__(self, row: Any) -> bool:
        self.rows += 1
        if self.rows == 3 and self.interrupt:
            raise KeyboardInterrupt
        return self.rows == 3


def collect(device: str, journals: Path, out: Path) -> None:
    """Write all arrays of the package that is imported to `out`; journals stay in the folder."""
    import maskerade_fast as mf

    tests = Path(mf.__file__).parents[1] / "tests"
    if device == "gpu":
        emulate(tests / "emulator")
    arrays: dict[str, Any] = {}
    for problem, X, y, chosen in problems():
        if device == "gpu" and problem in ("scattered", "space"):
            continue
        for recipe, options in recipes():
            if device == "gpu" and recipe in ("prior-random", "laplace-informed"):
                continue
            both = {**chosen, **options, "device": device, "seed": 11, "nodes": 256, "budget": _BUDGETS[device]}
            name = f"{device}/{problem}/{recipe}"
            post = mf.marginalise(X, y, **both)
            keep(arrays, f"{name}/alone", post)
            predict(arrays, f"{name}/predictions", post, X, y)
            journal = journals / f"{device}-{problem}-{recipe}"
            keep(arrays, f"{name}/checkpoint", mf.marginalise(X, y, checkpoint=journal, **both))
            keep(arrays, f"{name}/again", mf.marginalise(X, y, checkpoint=journal, **both))
            for interrupt in (False, True):
                stopped = mf.marginalise(X, y, callback=Stop(interrupt), **both)
                keep(arrays, f"{name}/{'interrupted' if interrupt else 'stopped'}", stopped)
            part = journals / f"part-{device}-{problem}-{recipe}"
            mf.marginalise(X, y, checkpoint=part, callback=Stop(False), **both)
            keep(arrays, f"{name}/resumed", mf.marginalise(X, y, checkpoint=part, **both))
            print(f"{name}: {post.log_evidence:.6f}", flush=True)
    if device == "cpu":
        sys.path.insert(0, str(tests))
        from operations import operations

        arrays |= {f"operations/{name}": np.asarray(value) for name, value in operations().items()}
    np.savez(out, **arrays)


def emulate(folder: Path) -> None:
    """Install an emulator as cupy."""
    sys.path.insert(0, str(folder))
    import fake_cupy

    fake_cupy.reset(0)
    sys.modules.update(fake_cupy.modules)


def keep(arrays: dict[str, np.ndarray], name: str, post: Any) -> None:
    """Everything of a posterior but the clock's seconds."""
    post = post.to("cpu")
    rows = [(r.evaluations, r.cost, r.log_evidence, r.log_evidence_sd, r.best_log_likelihood) for r in post.history]
    arrays[f"{name}/history"] = np.array(rows)
    arrays[f"{name}/evidence"] = np.array([post.log_evidence, post.log_evidence_sd])
    arrays[f"{name}/warnings"] = np.array(post.warnings, dtype=np.str_)
    for part in ("log_likelihoods", "component_probabilities", "pair_weights", "factor", "node_probabilities"):
        arrays[f"{name}/{part}"] = getattr(post, part)
    for part in ("mixtures", "mixtures_standardised", "nodes_standardised"):
        g = getattr(post, part)
        for field in ("offsets", "weights", "means", "scales", "noise_variances"):
            arrays[f"{name}/{part}.{field}"] = getattr(g, field)


def predict(arrays: dict[str, np.ndarray], name: str, post: Any, X: np.ndarray, y: np.ndarray) -> None:
    """What a posterior says."""
    prediction = post.predict(X[:7])
    arrays[f"{name}/mean"], arrays[f"{name}/variance"] = prediction.mean, prediction.variance
    arrays[f"{name}/quantile"] = prediction.quantile([0.1, 0.9])
    arrays[f"{name}/interval"] = np.array(post.interval(X[:7], 0.8))
    arrays[f"{name}/joint"] = np.array(post.joint_log_density(X[:5] + 0.01, y[:5]))
    lags = np.zeros((4, post.data_standardised.n_dims)) + np.arange(4.0)[:, None] / 9.0
    for part, band in (("kernel", post.kernel(lags)), ("spectrum", post.spectral_density(np.arange(5.0) / 3.0))):
        for field in ("mean", "lower", "upper"):
            arrays[f"{name}/{part}.{field}"] = getattr(band, field)


def run_state(tree: Path, device: str, folder: Path, journals: Path) -> Path:
    """The arrays that the package of a tree gives, made by a process of its own."""
    out = folder / f"{device}.npz"
    environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(folder / "numba")}
    script = ["--collect", str(out), "--device", device, "--journals", str(journals)]
    subprocess.run([sys.executable, "-P", __file__, *script], env=environment, check=True, cwd=folder)
    return out


def differences(before: Path, after: Path) -> list[str]:
    """Names of what differs in type, shape or any byte, or is on one side only."""
    with np.load(before) as one, np.load(after) as other:
        names = [*one, *(name for name in other if name not in one)]
        return [name for name in names if name not in one or name not in other or not same(one[name], other[name])]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal in every bit; NaN equals NaN of the same bits."""
    if a.dtype.kind == "U":
        return a.shape == b.shape and bool((a == b).all())
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?", default="HEAD", help="the state to compare this working tree with")
    parser.add_argument("--device", choices=["cpu", "gpu"], help="only this one")
    parser.add_argument("--collect", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--journals", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.collect:
        collect(options.device, options.journals, options.collect)
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        old, new = Path(scratch, "before"), Path(scratch, "after")
        for folder in (old / "tree", old / "journals", new / "journals"):
            folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", options.commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        subprocess.run(["tar", "-x", "-C", str(old / "tree")], input=archive.stdout, check=True)
        for device in [options.device] if options.device else ["cpu", "gpu"]:
            before = run_state(old / "tree", device, old, old / "journals")
            results = {"": run_state(ROOT, device, new, new / "journals")}
            again = Path(scratch, "again")
            again.mkdir(exist_ok=True)
            results[" (from the journals of the commit)"] = run_state(ROOT, device, again, old / "journals")
            with np.load(before) as arrays:
                count = len(arrays.files)
            for kind, after in results.items():
                names = differences(before, after)
                failed += len(names)
                print(f"{device}{kind}: {count} arrays, {len(names)} differ", *names[:20], sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
