"""Exceptions and warnings of the package that the standard ones do not express."""

from __future__ import annotations


class BackendUnavailableError(RuntimeError):
    """This installation or machine lacks the device or backend that the call needs."""


class DataError(ValueError):
    """A file of the user cannot be read as data; the message is one line for people."""


class UsageError(ValueError):
    """Options of the command line, or settings of its environment, are wrong or contradict each other.

    The message begins with the option or setting. The command ends with status 2, as after argparse's own refusals.
    """


class MissingDependencyError(ImportError):
    """A library of an extra is not installed: `name` says which; the message has the pip command that installs it."""


class OptimisationError(RuntimeError):
    """No start of an optimisation led to a finite value."""


class PrecisionWarning(UserWarning):
    """Numbers were accepted, but their floating-point type is too coarse for the answer."""


class UnequalMassWarning(UserWarning):
    """An energy distance was taken between mixtures of unequal total mass, where it is no distance."""


class CollapsedInputsWarning(PrecisionWarning):
    """Input points are so far from the origin, in their float type, that neighbours merge."""
