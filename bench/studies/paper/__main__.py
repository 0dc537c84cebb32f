"""The command line: ``python -m bench.studies.paper TABLE [--mode paper|default] [--resume] ...``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import BUILD
from maskerade_fast.model.trend import TRENDS

from . import figures, page, summaries
from .harness import path_of, read_rows, run_all
from .recipes import MODES
from .runs import TABLES, Options


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.studies.paper", description="The paper's tables and figures.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="TABLE | figures | page")
    for name, table in TABLES.items():
        one = commands.add_parser(name, help=table.title, description=table.title)
        one.add_argument("sets", nargs="*", metavar="SET", help="default: all of the table")
        one.add_argument("--mode", choices=MODES, default="default", help="the paper's recipe, or the package as it is")
        one.add_argument("--data-dir", type=Path, default=os.environ.get("MASKERADE_DATA"))
        one.add_argument("--runs", type=int, metavar="N", help="splits, folds or repeats (default: the table's)")
        one.add_argument("--first", type=int, default=0, metavar="K", help="number of the first of them")
        one.add_argument("--cap", type=float, metavar="SECONDS", help="time budget of a row; twice that ends it")
        one.add_argument("--budget", type=int, metavar="LIKELIHOODS")
        one.add_argument("--trend", choices=TRENDS, help="of the default mode (default: the package's)")
        one.add_argument("--components", type=int, metavar="Q", help="at most (default: the table's)")
        one.add_argument("--methods", nargs="+", default=(), metavar="METHOD", help="of forecasts (default: all)")
        one.add_argument("--resume", action="store_true", help="skip rows that the file has, but for limited ones")
        one.add_argument("--out", type=Path, default=BUILD / "paper", metavar="FOLDER", help="of the rows")
        one.add_argument("--show", action="store_true", help="only print the rows of the file")
    pictures = commands.add_parser("figures", help="the paper's figures")
    pictures.add_argument("figures", nargs="*", metavar="FIGURE")
    pictures.add_argument("--data-dir", type=Path, default=os.environ.get("MASKERADE_DATA"))
    pictures.add_argument("--out", type=Path, default=BUILD / "figures", metavar="FOLDER")
    pages = commands.add_parser("page", help="compare the tables of the docs with the rows of bench/results/paper")
    pages.add_argument("--save", action="store_true", help="write them")
    options = parser.parse_args(arguments)
    if options.command == "figures":
        return figures.draw(options.figures, options.data_dir and Path(options.data_dir), options.out)
    if options.command == "page":
        return page.write(save=options.save)
    return one_table(options)


def one_table(options: argparse.Namespace) -> int:
    path = path_of(options.command, options.mode, options.out)
    count = options.runs if options.runs is not None else TABLES[options.command].numbers[options.mode]
    chosen = Options(
        mode=options.mode,
        folder=options.data_dir and Path(options.data_dir),
        numbers=range(options.first, options.first + count),
        sets=tuple(options.sets),
        methods=tuple(options.methods),
        cap=options.cap,
        budget=options.budget,
        trend=options.trend,
        components=options.components,
    )
    rows = read_rows(path)
    if not options.show:
        try:
            rows = run_all(TABLES[options.command].runs(chosen), path, resume=options.resume)
        except KeyboardInterrupt:
            print(f"interrupted; {path} has the rows so far, --resume goes on", file=sys.stderr)
            return 130
    print(summaries.markdown(options.command, {options.mode: rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
