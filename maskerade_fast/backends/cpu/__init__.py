"""The CPU backend: Numba kernels on NumPy arrays, in float64, spread over threads by `_parallel`."""
