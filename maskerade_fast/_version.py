"""The version, said once more in pyproject.toml; here so that files can name what wrote them."""

__version__ = "0.1.0"
