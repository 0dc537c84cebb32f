"""The GPU backend: the doors of `backends.cpu` on CuPy arrays, served by the CUDA sources of `kernels/`.

Importing it needs CuPy, a driver and a card; without them it raises `BackendUnavailableError` with the cause.
"""

from . import _loader as _loader  # first: it says what is missing before any door imports cupy

__all__: list[str] = []
