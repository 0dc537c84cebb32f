"""What a dry run puts in the place of a card: the tests' emulator of the kernels and its stand-in for cupy.

The stand-in lacks what only measurements need: elementwise kernels, and a disk cache as CuPy's, whose files here say
that a kernel was compiled and hold nothing. Both are added here.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bench import ROOT

SHARED_BYTES = 64 * 1024
"""A T4's, so little that problems of 120 and 336 points already go the ways of large ones."""
NO_RATES = {"ClockRate": 1, "MemoryClockRate": 1, "GlobalMemoryBusWidth": 8}  # of no card: floors are walked through
C_TYPES = {"float64": "double", "int32": "int", "int64": "long long"}


def install() -> Any:
    """Let `import cupy` give the stand-in; returns its module."""
    sys.path.insert(0, str(ROOT / "tests" / "emulator"))
    import fake_cupy

    device: Any = fake_cupy.Device
    module: Any = fake_cupy.RawModule
    fake_cupy.reset()
    fake_cupy.state.devices[0].shared_bytes = SHARED_BYTES
    own = device.attributes.fget
    device.attributes = property(lambda device: own(device) | NO_RATES)
    fake_cupy.cupy.ElementwiseKernel = ElementwiseKernel
    compiled = module.get_function

    def get_function(module: Any, name: str) -> Any:
        if folder := os.environ.get("CUPY_CACHE_DIR"):
            key = hashlib.sha1(f"{module.options} {module.code}".encode(), usedforsecurity=False).hexdigest()
            Path(folder, f"{key}.cubin").touch()
        return compiled(module, name)

    module.get_function = get_function
    sys.modules.update(fake_cupy.modules)
    return fake_cupy


class ElementwiseKernel:
    """cupy.ElementwiseKernel for raw float64 arrays, scalars and contiguous outputs; all are compiled together."""

    made: ClassVar[list[ElementwiseKernel]] = []

    def __init__(self, in_params: str, out_params: str, operation: str, name: str) -> None:
        self.inputs = [re.fullmatch(r"(raw )?(\w+) (\w+)", text.strip()) for text in in_params.split(",")]
        self.outputs = [text.split()[1] for text in out_params.split(",")]
        self.operation, self.name = operation, name
        self.made.append(self)

    @property
    def source(self) -> str:
        parts = [
            f"const double* {match[3]}" if match[1] else f"{C_TYPES[match[2]]} {match[3]}"
            for match in self.inputs
            if match is not None
        ]
        parts += [f"double* all_{name}" for name in self.outputs]
        loop = "for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += gridDim.x * blockDim.x)"
        references = " ".join(f"double& {name} = all_{name}[i];" for name in self.outputs)
        return (
            f'extern "C" __global__ void {self.name}({", ".join(parts)}, long long size) {{\n'
            f"{loop} {{ {references}\n{self.operation} }} }}\n"
        )

    def __call__(self, *args: Any) -> Any:
        import cupy

        module = cupy.RawModule(code="".join(kernel.source for kernel in self.made), options=("-std=c++17",))
        outputs = args[len(self.inputs) :]
        typed = [
            arg if match is None or match[1] else np.dtype(match[2]).type(arg)
            for match, arg in zip(self.inputs, args, strict=False)
        ]
        size = np.int64(outputs[0].size)
        module.get_function(self.name)((4,), (64,), (*typed, *outputs, size))
        return outputs if len(outputs) > 1 else outputs[0]
