"""The package's own errors: wrong options raise UsageError, missing extras MissingDependencyError, files DataError."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import maskerade_fast as mf

PACKAGE = Path(mf.__file__).parent


def test_what_they_are() -> None:
    assert issubclass(mf.UsageError, ValueError)
    assert issubclass(mf.MissingDependencyError, ImportError)
    assert not issubclass(mf.UsageError, mf.DataError)


def raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name of every error that is made with a literal message, and how the message begins and goes on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Error"):
            for argument in node.args[:1]:
                parts = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
                values = [p.value if isinstance(p, ast.FormattedValue) else p for p in parts]
                texts = [str(v.value) if isinstance(v, ast.Constant) else f"<{ast.unparse(v)}>" for v in values]
                yield node.func.id, "".join(texts)


def test_every_message_has_its_kind() -> None:
    """Of what the package raises: messages that begin with an option, and those that say what pip installs."""
    kinds: dict[str, set[str]] = {"option": set(), "extra": set()}
    for path in sorted(PACKAGE.rglob("*.py")):
        for kind, message in raised(ast.parse(path.read_text())):
            if "pip install" in message and "CuPy" not in message:
                kinds["extra"].add(kind)
            elif message.startswith(("--", "<option>")):
                kinds["option"].add(kind)
    assert kinds == {"option": {"UsageError"}, "extra": {"MissingDependencyError"}}
