"""One fault at a time in a copy of the tree, and which test notices it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import rules
from rules import ROOT, Place

HERE = Path(__file__).parent
RUN = [sys.executable, "-m", "pytest", "-q", "-x", "--all", "-p", "no:benchmark", "-p", "outcomes", "--no-header"]
LONGEST = 300.0  # seconds of one test, beyond which it counts as one that hangs
HANGS = f"no end after {LONGEST:.0f} s"
UNFIT = ("CompileError", "nvcc error", "NVRTC", "SyntaxError")  # of a fault that is no program

NEAR = {  # module or source: the tests that look at it first, by parts of their names
    rules.GPU: {
        "_blocked": ("gpu_regimes", "gpu_likelihood"),
        "_loader": ("gpu_loader", "gpu_streams", "devices"),
        "_mixtures": ("gpu_gram", "gpu_likelihood", "gpu_gp", "trend"),
        "__init__": ("backend_contract",),
        "_gp_chunks": ("gpu_gp", "toeplitz"),
        "atoms": ("gpu_distances", "gpu_hyperkernel"),
        "cholesky": ("gpu_regimes", "gpu_likelihood", "gpu_gp"),
        "common": ("kernel_common", "gpu_gram", "gpu_prediction", "gpu_regimes"),
        "elimination": ("gpu_regimes", "gpu_likelihood"),
        "gram": ("kernel_common", "gpu_gram", "gpu_regimes", "gpu_likelihood"),
        "joint": ("gpu_prediction", "mixture_prediction"),
        "likelihood": ("gpu_regimes", "gpu_likelihood"),
        "mixture_prediction": ("gpu_prediction", "mixture_prediction"),
        "products": ("gpu_regimes", "gpu_gp"),
        "partial_gradients": ("gpu_distances",),
        "schur": ("toeplitz",),
        "tiles": ("gpu_regimes", "gpu_likelihood"),
    },
    rules.CPU: {
        "_workers": ("likelihood",),
        "_covariance": ("likelihood", "gram"),
        "_distance_gradients": ("distances",),
        "_distance_loops": ("distances", "hyperkernel"),
        "_exact": ("toeplitz", "gram"),
        "_results": ("likelihood", "gp"),
        "cholesky": ("likelihood", "factorisations"),
        "counted_posterior": ("starts", "adaptive_run"),
        "_host_loops": ("student", "likelihood"),
        "_joint_pairs": ("mixture_prediction",),
        "_lapack": ("likelihood",),
        "_likelihood_gradients": ("likelihood",),
        "_math": ("numerics", "gram", "distances"),
        "_pair_quantiles": ("mixture_prediction",),
        "_pair_sums": ("mixture_prediction",),
        "_parallel": ("threads", "likelihood"),
        "_without_jit": ("without_jit",),
        "_schur": ("toeplitz",),
        "_toeplitz_loops": ("toeplitz",),
        "_trend": ("trend", "toeplitz"),
        "draws": ("prior", "reference_measure"),
        "grid": ("toeplitz", "inputs"),
        "latent_layout": ("latent",),
        "masses": ("hyperkernel", "masses"),
        "metric": ("distances", "hyperkernel"),
        "metric_distances": ("hyperkernel",),
        "modes": ("starts", "adaptive_run"),
        "posterior": ("prior_run", "archive", "mixture_prediction"),
        "adaptation": ("adaptation", "adaptive_run"),
        "bands": ("plotting", "prior_run"),
        "acquisition_information": ("acquisition", "numerics"),
        "selection": ("prior_run", "plotting"),
        "stick_breaking": ("latent", "student"),
        "acquisition_uncertainty": ("acquisition", "numerics"),
        "warping": ("surrogate", "prior_run"),
    },
}
OF_A_KIND = {  # kind: the tests that look at it first
    "seeds": ("seeds",),
    "barriers": ("barriers",),
    "streams": ("gpu_streams",),
    "32-bit products": ("gpu_indices", "gpu_far_batches"),
}
OF_THE_GPU = ("test_gpu_", "test_devices", "test_kernel_", "test_barriers", "test_backend_contract")
"""Beginnings of the files that come next for a fault of that backend, in this order."""


RUNNING: set[subprocess.Popen[Any]] = set()
"""Runs of tests that have not ended, for whoever ends this process."""


class Outcome(NamedTuple):
    """What a run of tests said of a fault."""

    status: str
    """killed, survived, unfit"""
    test: str | None = None
    how: str | None = None
    seconds: float = 0.0
    seconds_alone: float | None = None
    """Of the test that noticed it, in a process of its own."""

    @property
    def settled(self) -> bool:
        return self.status != "survived"


class Workplace:
    """A copy of the tree, in which faults are tried; compiled kernels of the emulator are shared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes = folder.with_suffix(".outcomes")
        self.touched = 0
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (ROOT / "build" / "emulator").mkdir(parents=True, exist_ok=True)
        (folder / "build").mkdir(exist_ok=True)
        (folder / "build" / "emulator").symlink_to(ROOT / "build" / "emulator")
        imported = subprocess.run(
            [sys.executable, "-c", "import maskerade_fast; print(maskerade_fast.__file__)"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        if not Path(imported.stdout.strip()).is_relative_to(folder.resolve()):
            raise RuntimeError(
                f"tests here would run {imported.stdout.strip()}: use an environment without an editable install"
            )

    def trial(self, place: Place, whole: bool = False) -> Outcome:
        """Put the fault in and run tests until one fails: the near ones, those of the GPU backend, `whole`: all."""
        with self.fault(place):
            if not fits(self.folder, place):
                return Outcome("unfit")
            outcome = Outcome("survived")
            for tests in stages(self.folder, place, whole):
                outcome = self.run(tests)
                if outcome.settled:
                    break
            if outcome.status == "killed" and outcome.test and "::" in outcome.test and outcome.how != HANGS:
                alone = self.run([outcome.test])
                outcome = outcome._replace(seconds_alone=alone.seconds if alone.status == "killed" else None)
            return outcome

    def noticed(self, place: Place, test: str) -> bool | None:
        """Whether `test` fails with the fault; None if there is no such test any more."""
        with self.fault(place):
            outcome = self.run([test])
        return None if outcome.status == "absent" else outcome.status == "killed"

    @contextlib.contextmanager
    def fault(self, place: Place) -> Iterator[None]:
        """Change a line meanwhile, with dates that no cache takes for those of the original."""
        path = self.folder / place.file
        text, dates = path.read_text(encoding="utf-8"), path.stat()
        self.touched += 1
        path.write_text(applied(text, place), encoding="utf-8")
        os.utime(path, (dates.st_atime, dates.st_mtime + 10 * self.touched))
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")
            os.utime(path, ns=(dates.st_atime_ns, dates.st_mtime_ns))

    def run(self, tests: list[str]) -> Outcome:
        self.outcomes.write_text("")
        environment = {
            **os.environ,
            "OUTCOMES": str(self.outcomes),
            "NUMBA_CACHE_DIR": str(self.folder.with_suffix(".numba")),
            "PYTHONPATH": str(HERE),
        }
        start = time.monotonic()
        with subprocess.Popen(
            [*RUN, *tests],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            RUNNING.add(process)
            try:
                code = self.end_of(process)
            finally:
                with_all_children(process)
                RUNNING.discard(process)
        seconds = round(time.monotonic() - start, 1)
        entries = [json.loads(line) for line in self.outcomes.read_text(encoding="utf-8").splitlines()]
        failed = next((entry for entry in entries if "failed" in entry), None)
        if code == 0:
            return Outcome("survived", seconds=seconds)
        if failed is not None:
            status = "unfit" if any(word in failed["why"] for word in UNFIT) else "killed"
            return Outcome(status, failed["failed"], last_line(failed["why"]), seconds)
        if code in (4, 5) and not entries:
            return Outcome("absent", seconds=seconds)
        running = next((entry["started"] for entry in reversed(entries) if "started" in entry), None)
        return Outcome("killed", running, HANGS if code is None else f"exit status {code}", seconds)

    def end_of(self, process: subprocess.Popen[Any]) -> int | None:
        """Exit status of a run of tests; None if one of them does not end."""
        while True:
            try:
                return process.wait(1.0)
            except subprocess.TimeoutExpired:
                if time.time() - self.outcomes.stat().st_mtime > LONGEST:  # written when a test begins
                    return None


def applied(text: str, place: Place) -> str:
    """The text with the fault; ValueError if its line is not there."""
    lines = text.split("\n")
    equal = [number for number, line in enumerate(lines) if line == place.old]
    if len(equal) <= place.copy:
        raise ValueError(f"{place.file} has no such line: {place.old.strip()}")
    lines[equal[place.copy]] = place.new
    return "\n".join(lines)


def fits(folder: Path, place: Place) -> bool:
    """Whether the changed file can still be a program; what a compiler says of kernels comes out in their tests."""
    if place.file.endswith(rules.KERNELS):
        return True
    try:
        compile((folder / place.file).read_text(encoding="utf-8"), place.file, "exec")
    except SyntaxError:
        return False
    return True


def stages(folder: Path, place: Place, whole: bool) -> list[list[str]]:
    """Tests to run one after another until a fault is noticed."""
    stem = Path(place.file).stem
    usual = (f"gpu_{stem}", stem) if place.group == rules.GPU else (stem.lstrip("_"),)
    topics = (*OF_A_KIND.get(place.kind, ()), *NEAR[place.group].get(stem, usual))
    near = [name for topic in topics for name in _files(folder, f"test_{topic}.py")]
    nearest = [near] if near else []
    if place.group == rules.GPU:
        nearest.append([name for beginning in OF_THE_GPU for name in _files(folder, f"{beginning}*.py")])
    return [*nearest, ["tests"]] if whole or not nearest else nearest


def _files(folder: Path, pattern: str) -> list[str]:
    """Tests of the package whose files are named so."""
    names = sorted(path.relative_to(folder).as_posix() for path in (folder / "tests").rglob(pattern))
    return [name for name in names if "benchmarks" not in name]


def with_all_children(process: subprocess.Popen[Any]) -> None:
    """End what a run has started and left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if re.match(r"E  ", line)] or text.splitlines() or [""]
    return lines[0].removeprefix("E").strip()[:160]
