"""The version of the package, also in pyproject.toml, and those of installed distributions."""

from __future__ import annotations

__version__ = "0.1.0"


def installed_version(name: str) -> str | None:
    """Version of an installed distribution; None if it is not installed."""
    import importlib.metadata  # only commands and checkpoints need it

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
