"""Options of the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import unicodedata
from pathlib import Path
from typing import Any, NoReturn

from .._version import installed_version
from ..model.trend import TRENDS
from ..run import defaults
from .console import EXIT_STATUSES


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; `options.command` is the name of the chosen one."""
    shape: dict[str, Any] = {"epilog": EXIT_STATUSES}
    top = Parser(
        prog="maskerade-fast",
        description="Gaussian processes, averaged over spectral mixture kernels by Bayesian quadrature.",
        **shape,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {installed_version('maskerade_fast')}")
    commands = top.add_subparsers(dest="command", required=True, metavar="fit | predict | info | warm-up")
    _add_fit(commands.add_parser("fit", help="learn from a CSV file; print evidence and scores", **shape))
    _add_predict(commands.add_parser("predict", help="predict the rows of a file with a saved model", **shape))
    commands.add_parser("info", help="versions, threads, devices, and what a GPU would need", **shape)
    warm_up = commands.add_parser("warm-up", help="compile everything ahead, for images and CI", **shape)
    warm_up.add_argument(
        "--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: the CPU, and a GPU that can be used"
    )
    return top


def _name(text: str) -> str:
    """The name of a column in UTF-8, like tables, also in a locale with another encoding."""
    with contextlib.suppress(UnicodeError):
        text = os.fsencode(text).decode()
    return unicodedata.normalize("NFC", text)


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected yes or no")
    return text == "yes"


def _output(text: str) -> Path:
    if text in ("", "-") or text.endswith(("/", os.sep)):
        raise argparse.ArgumentTypeError(f"{text!r}, expected the name of a file; standard output is /dev/stdout")
    return Path(text)


def _add_table(command: argparse.ArgumentParser) -> None:
    """Options of a table to read."""
    command.add_argument(
        "--header",
        metavar="yes|no",
        type=_yes_or_no,
        help="whether the first row holds names (default: detected, with a note)",
    )


def _add_fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("data", metavar="DATA.csv", type=Path, help="numbers in columns, with or without a header")
    fit.add_argument("--target", metavar="NAME", type=_name, help="column to predict (default: the last)")
    fit.add_argument("--columns", metavar="A,B", type=_name, help="columns to learn from (default: all but the target)")
    _add_table(fit)
    fit.add_argument("--test-fraction", metavar="F", type=float, default=0.0, help="share of rows held out (default 0)")
    fit.add_argument("--split", choices=("random", "last"), default="random", help="which rows are held out")
    spent = fit.add_mutually_exclusive_group()
    spent.add_argument(
        "--budget",
        metavar="N",
        type=int,
        default=defaults.BUDGET,
        help=f"likelihood evaluations (default {defaults.BUDGET})",
    )
    spent.add_argument("--minutes", metavar="T", type=float, help="time instead of a number of evaluations")
    fit.add_argument(
        "--max-components",
        metavar="N",
        type=int,
        help=f"largest mixture of a kernel (default {defaults.MAX_COMPONENTS})",
    )
    fit.add_argument("--trend", choices=TRENDS, help=f"beside the process (default {defaults.TREND})")
    fit.add_argument("--seed", metavar="S", type=int, help="makes split and result repeatable")
    fit.add_argument(
        "--device", choices=("auto", "cpu", "gpu"), default="auto", help="default: the GPU where one can be used"
    )
    fit.add_argument("--plot", metavar="OUT.png", type=_output, help="picture of the fit (needs matplotlib)")
    fit.add_argument(
        "--panels", action="store_true", help="with --plot: the spectrum, the evidence and the weights too"
    )
    fit.add_argument(
        "--predictions",
        metavar="OUT.csv",
        type=_output,
        help="of the rows that were not learned from, or of all if none are held out",
    )
    fit.add_argument("--save", metavar="MODEL.npz", type=_output, help="for `maskerade-fast predict`")
    fit.add_argument(
        "--checkpoint", metavar="FILE", type=_output, help="keeps all likelihoods; the same call goes on from it"
    )
    fit.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _add_predict(predict: argparse.ArgumentParser) -> None:
    predict.add_argument("model", metavar="MODEL.npz", type=Path, help="written by `fit --save`")
    predict.add_argument(
        "data", metavar="NEW.csv", type=Path, help="the model's inputs, found by name, with or without its target"
    )
    predict.add_argument(
        "--target", metavar="NAME", type=_name, help="column of targets (default: the one of the model, if there)"
    )
    predict.add_argument(
        "--columns",
        metavar="A,B",
        type=_name,
        help="the model's inputs in its order, where this file names them otherwise",
    )
    _add_table(predict)
    predict.add_argument("--predictions", metavar="OUT.csv", type=_output, help="default: standard output")
