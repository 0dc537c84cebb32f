"""Fixtures of all tests, and the two hypothesis profiles: "ordinary", and ``HYPOTHESIS_PROFILE=long``."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from maskerade_fast.backends import is_cupy, to_device, to_host
from maskerade_fast.model.gmm import GMMBatch
from maskerade_fast.ops.mixture_prediction import Prediction

sys.path.insert(0, str(Path(__file__).parent / "emulator"))

import emulate
import selection
from fresh_backend import fresh_backend
from selection import pytest_addoption as pytest_addoption  # a hook

try:
    import hypothesis
except ImportError:  # the run on the oldest versions goes without: modules of properties importorskip it
    pass
else:
    common: dict[str, Any] = {"deadline": None, "database": None, "print_blob": True}
    slow_data = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large]
    hypothesis.settings.register_profile(
        "ordinary", max_examples=20, derandomize=True, suppress_health_check=slow_data, **common
    )
    hypothesis.settings.register_profile("long", max_examples=1000, suppress_health_check=slow_data, **common)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))


class EmulatedCases:
    """Counts the tests that passed and ran kernels on the emulator, in all processes.

    With ``--ci`` the run fails if they are fewer than tests/emulated_cases.toml has.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.passed = 0
        self.least = 0
        if config.getoption("--ci"):
            counts = tomllib.loads((Path(__file__).parent / "emulated_cases.toml").read_text())
            self.least = counts["ordinary"] + (counts["sweep"] if config.getoption("--sweep") else 0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        before = emulate.launched
        yield
        if emulate.launched > before:
            item.user_properties.append(("emulated", emulate.launched - before))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed and "emulated" in dict(report.user_properties)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        gathers = not hasattr(session.config, "workerinput")
        if gathers and self.passed < self.least and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.passed < self.least:
            terminalreporter.write_line(f"{self.passed} emulated cases passed, expected {self.least} or more", red=True)
        elif self.passed:
            terminalreporter.write_line(f"{self.passed} emulated cases passed")


def pytest_configure(config: pytest.Config) -> None:
    # A suite that was started in the background ignores interrupts, and so would the commands that tests interrupt
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    config.pluginmanager.register(EmulatedCases(config), "emulated-cases")
    config.pluginmanager.register(selection.Selection(config), "selection")


@pytest.fixture
def cuda_compiler(request: pytest.FixtureRequest) -> Any:
    """`cubins`, where it has a compiler; without one the test skips, and with ``--ci`` it fails."""
    import cubins

    if cubins.compiler() is None:
        selection.lacking(request.config, "neither nvcc nor NVRTC (pip install nvidia-cuda-nvrtc) is on this machine")
    return cubins


@pytest.fixture(params=["cpu", "gpu-emulated", "gpu"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of the backend a test runs on: the package's functions that the test's module imported compute there.

    They take and give NumPy arrays as ever, and see to it that every array of a result lives on the device.
    "gpu-emulated" runs the kernels on the CPU (tests/emulator): keep its cases few and small.
    """
    from maskerade_fast import backends

    name = str(request.param)
    if name == "gpu-emulated":
        request.getfixturevalue("emulated")
    elif name == "gpu" and (problem := backends.gpu_problem()):
        pytest.skip(problem)
    if name != "cpu":
        for key, value in vars(request.module).items():
            if inspect.isfunction(value) and value.__module__.startswith(("maskerade_fast.", "kernel_functions")):
                monkeypatch.setitem(vars(request.module), key, _on_gpu(value))
    return name


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine where cupy cannot be imported."""
    with fresh_backend():
        monkeypatch.setitem(sys.modules, "cupy", None)
        yield


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with arguments taken to the GPU, and results brought back from there."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return _from_gpu(function(*map(_to_gpu, args), **{key: _to_gpu(value) for key, value in kwargs.items()}))

    return call


def _to_gpu(value: Any) -> Any:
    if isinstance(value, GMMBatch):
        return value.to("gpu")
    if isinstance(value, list) and any(isinstance(item, GMMBatch) for item in value):
        return [_to_gpu(item) for item in value]
    return to_device(np.asarray(value), "gpu") if isinstance(value, (np.ndarray, list)) else value


def _from_gpu(value: Any) -> Any:
    if isinstance(value, Prediction):
        return value.moved(np.empty(0))  # sums over pairs stay on the GPU
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: _from_gpu(getattr(value, name)) for name in names})
    if isinstance(value, tuple):
        return tuple(map(_from_gpu, value))
    if inspect.isfunction(value):
        return _on_gpu(value)
    assert not isinstance(value, np.ndarray), "a result left the GPU"
    return to_host(value) if is_cupy(value) else value


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    """Floating type of a test's arrays."""
    return np.dtype(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    """Generator of a test's random data: the same for every run."""
    return np.random.default_rng(20220328)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Recordings of the drivers (tests/emulator/drivers), kept for the session once a test has made them."""
    return {"folder": tmp_path_factory.mktemp("launches")}


@pytest.fixture
def emulated(request: pytest.FixtureRequest) -> Iterator[Any]:
    """`fake_cupy`, installed as cupy: `maskerade_fast.backends.gpu` runs its kernels on the CPU.

    Forward order unless the test chooses: ``@pytest.mark.parametrize("emulated", ORDERS, indirect=True)``. The backend
    is imported anew; a real cupy, and the backend on it, come back afterwards. With ``--card`` the real one stays
    (tests/real_card.py), and tests that need what only the emulator has skip.
    """
    if request.config.getoption("--card"):
        import real_card

        if getattr(request, "param", "forward") != "forward":
            pytest.skip("a card has its own order of threads")
        with real_card.watched() as card:
            yield card
        return
    import fake_cupy

    with fresh_backend("cupy", "cupyx"):
        fake_cupy.reset(emulate.ORDERS[getattr(request, "param", "forward")])
        sys.modules.update(fake_cupy.modules)
        yield fake_cupy
        fake_cupy.check_memory()


@pytest.fixture
def cupy(emulated: Any) -> Any:
    """cupy, on the emulator or on a card."""
    import cupy

    return cupy


@pytest.fixture
def gpu(emulated: Any, request: pytest.FixtureRequest) -> ModuleType:
    """The module of `maskerade_fast.backends.gpu` that the test's module names as `OPERATIONS`."""
    return importlib.import_module(f"maskerade_fast.backends.gpu.{request.module.OPERATIONS}")
