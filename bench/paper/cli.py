"""The command line: ``python bench/paper TABLE [--mode paper|default] [--resume] ...``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import summaries
from .harness import RESULTS, path_of, read_rows, run_all
from .recipes import MODES
from .runs import TABLES, Options

_QUICK_TABLES = ("series", "ablation", "nodes", "forecasts")  # those that have a run on the airline series


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python bench/paper", description="The paper's tables and figures, and forecasts.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="TABLE | figures | page | quick")
    for name, table in TABLES.items():
        one = commands.add_parser(name, help=table.title, description=(table.runs.__doc__ or "").strip())
        one.add_argument("sets", nargs="*", metavar="SET", help="default: all of the table")
        one.add_argument("--mode", choices=MODES, default="default", help="the paper's recipe, or the package as it is")
        one.add_argument("--data-dir", type=Path, default=os.environ.get("MASKERADE_DATA"))
        one.add_argument("--runs", type=int, metavar="N", help="splits, folds or repeats (default: the table's)")
        one.add_argument("--first", type=int, default=0, metavar="K", help="number of the first of them")
        one.add_argument("--cap", type=float, metavar="SECONDS", help="time budget of a row; twice that ends it")
        one.add_argument("--budget", type=int, metavar="LIKELIHOODS")
        one.add_argument("--methods", nargs="+", default=(), metavar="METHOD", help="of forecasts (default: all)")
        one.add_argument("--resume", action="store_true", help="skip the rows that are there")
        one.add_argument("--retry-failed", action="store_true", help="with --resume: but not those that failed")
        one.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
        one.add_argument("--show", action="store_true", help="only print what is there")
    figures = commands.add_parser("figures", help="the paper's figures, into docs/pictures/")
    figures.add_argument("figures", nargs="*", metavar="FIGURE")
    figures.add_argument("--data-dir", type=Path, default=os.environ.get("MASKERADE_DATA"))
    figures.add_argument("--out", type=Path, metavar="FOLDER")
    page = commands.add_parser("page", help="the tables of results.md and forecasts.md in docs/measured")
    page.add_argument("--check", action="store_true", help="write nothing; exit status 1 if something would be")
    commands.add_parser("quick", help="every table with a run on airline, at settings that mean nothing: seconds")
    options = parser.parse_args(arguments)
    if options.command == "figures":
        from .figures import draw

        return draw(options.figures, options.data_dir, options.out)
    if options.command == "page":
        from .page import write

        return write(check=options.check)
    if options.command == "quick":
        return quick()
    return one_table(options)


def one_table(options: argparse.Namespace) -> int:
    path = path_of(options.command, options.mode, options.results)
    count = options.runs if options.runs is not None else TABLES[options.command].numbers[options.mode]
    given = Options(
        mode=options.mode,
        folder=None if options.data_dir is None else Path(options.data_dir),
        sets=tuple(options.sets),
        numbers=range(options.first, options.first + count),
        cap=options.cap,
        budget=options.budget,
        methods=tuple(options.methods),
    )
    rows = read_rows(path)
    if not options.show:
        runs = TABLES[options.command].runs(given)
        try:
            rows = run_all(runs, path, resume=options.resume, retry_failed=options.retry_failed)
        except KeyboardInterrupt:
            print(f"interrupted; {path} has the rows so far, --resume goes on", file=sys.stderr)
            return 130
    print(summaries.markdown(options.command, {options.mode: rows}))
    return 0


def quick() -> int:
    """Exit status 1 if a row failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES:
            for name in _QUICK_TABLES:
                given = Options(mode, None, (), None, cap=20.0, budget=40, quick=True)
                rows = run_all(TABLES[name].runs(given), path_of(name, mode, Path(folder)))
                failed += sum("failed" in row for row in rows) + (not rows)
                print(f"{name}, {mode}\n\n{summaries.markdown(name, {mode: rows})}\n")
    return int(failed > 0)
