"""Importing: light, complete, and safe on machines where CuPy or its driver is missing or broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "GMMBatch",
    "GMMGradient",
    "concat",
    "Metric",
    "energy_distance",
    "energy_distance_vjp",
    "gaussian_mmd2",
    "gaussian_mmd2_vjp",
    "hyperkernel",
    "hyperkernel_vjp",
    "hyperkernel_matvec",
    "gram",
    "log_likelihood",
    "LogLikelihood",
    "predict_gp",
    "GPPrediction",
    "warm_up",
    "Prior",
    "Draws",
    "marginalise",
    "load",
    "Prediction",
    "JointDensity",
    "Surrogate",
    "integrate",
    "Evidence",
    "mutual_information",
    "uncertainty",
    "combine_gaussians",
    "combine_gaussians_joint",
    "Posterior",
    "Band",
    "HistoryRow",
    "RegressionData",
    "Standardiser",
    "DataError",
    "UsageError",
    "MissingDependencyError",
    "BackendUnavailableError",
]
HEAVY = ["numba", "llvmlite", "scipy.stats", "matplotlib", "cupy", "torch", "jax"]

# C26: what a module named cupy does when it is imported, for every way in which a machine may lack a usable card.
BROKEN_CUPY = {
    "absent": "raise ModuleNotFoundError(\"No module named 'cupy'\", name='cupy')",
    "no driver": "raise ImportError('libcuda.so.1: cannot open shared object file')",
    "no device": """
class _Runtime:
    class CUDARuntimeError(RuntimeError): ...
    def getDeviceCount(self): raise self.CUDARuntimeError('cudaErrorNoDevice: no device is detected')
class cuda:
    runtime = _Runtime()
    def is_available(): return False
""",
}
CAUSES = {
    "absent": "No module named 'cupy'",
    "no driver": "libcuda.so.1: cannot open shared object file",
    "no device": "cudaErrorNoDevice: no device is detected",
}
CPU_CALLS = """
import sys
import numpy as np
import maskerade_fast as mf
from maskerade_fast.errors import BackendUnavailableError

g = mf.GMMBatch.from_list([([0.6, 0.4], [0.0, 3.0], [1.0, 1.0]), ([1.0], [0.0], [1.0])])
assert abs(mf.energy_distance(g)[0, 1] - 0.48) < 1e-15
value = mf.log_likelihood(g[1], [0.0, 1.0, 2.0], [1.0, -1.0, 0.5], 0.01).value
assert value.shape == (1,) and np.isfinite(value).all()
for call in (
    lambda: g.to("gpu"),
    lambda: mf.marginalise([0.0, 1.0, 2.0], [1.0, -1.0, 0.5], device="gpu", budget=4),
):
    try:
        call()
    except BackendUnavailableError as error:
        assert "\\n" not in str(error) and str(error).startswith("device='gpu': ") and sys.argv[1] in str(error), error
    else:
        raise AssertionError("no error for a GPU that is not there")
post = mf.marginalise(
    np.linspace(0, 1, 8), np.sin(np.arange(8.0)), device="auto", budget=8, initial=4, batch_size=4,
    max_components=1, nodes=32, seed=0,
)
assert np.isfinite(post.log_evidence) and post.device == "cpu"
"""


def python(code: str, *first_on_path: Path, argument: str = "", **environment: str) -> str:
    """Standard output of a fresh interpreter; warnings are errors there too."""
    path = os.pathsep.join(str(p) for p in (*first_on_path, ROOT))
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, argument],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_import_is_light_and_complete() -> None:
    """No heavy module, no thread, every public name there and listed, and nothing in `__all__` that is not there."""
    code = f"""
import sys, threading
import maskerade_fast as mf
print([name for name in {HEAVY} if name in sys.modules], threading.active_count())
print([name for name in {PUBLIC} if not hasattr(mf, name) or name not in dir(mf)])
print([name for name in mf.__all__ if not hasattr(mf, name)])
"""
    assert python(code).splitlines() == ["[] 1", "[]", "[]"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN_CUPY)
def test_without_a_usable_card(kind: str, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text(BROKEN_CUPY[kind])
    python(CPU_CALLS, tmp_path, argument=CAUSES[kind])


@pytest.mark.slow
def test_with_the_cards_hidden() -> None:
    python(CPU_CALLS, CUDA_VISIBLE_DEVICES="")
