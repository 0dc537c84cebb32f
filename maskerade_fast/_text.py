"""Names and cells of unknown length and content, as one printable line for messages."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_NAMES = 20  # in a message


def shortened(text: str, length: int = 30) -> str:
    """`text` as one printable line of at most `length` characters, for messages."""
    text = text if len(text) <= length else text[: length - 3] + "..."
    return text if text.isprintable() else repr(text)


def quoted(text: str) -> str:
    """`text` in quotes, cut to 30 characters, for messages."""
    return repr(text if len(text) <= 30 else text[:27] + "...")


def listed(names: Sequence[str]) -> str:
    """Names with commas between them, on one line; of many, the first and the last.

    A name with a comma in it, or a blank at an end, stands in double quotes, as ``--columns`` takes it.
    """
    shown = names if len(names) <= _MOST_NAMES else [*names[: _MOST_NAMES - 2], "...", names[-1]]
    return ", ".join(_delimited(name) for name in shown)


def _delimited(name: str) -> str:
    short = shortened(name)
    if name.isprintable() and ("," in name or name != name.strip()):
        return '"' + short.replace('"', '""') + '"'
    return short
