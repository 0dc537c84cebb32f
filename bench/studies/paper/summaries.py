"""Rows of results as tables: mean ± sd over splits, how many runs there are, paired tests between methods.

Paired tests compare two methods on the splits that both have, by Wilcoxon's signed ranks, two-sided. A row that failed
counts as a run without figures, and is named.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

import numpy as np
from scipy import stats

from . import published
from .data import Array
from .harness import Row
from .runs import FORECASTS, TABLES

_BUSY_LOAD = 1.5  # after a row, which is 1 of it: others were at work, and seconds are no measure
_FEWEST_PAIRS = 3
NAMES = {
    "yacht": "yacht",
    "autompg": "auto MPG",
    "concrete": "concrete",
    "airfoil": "airfoil",
    "airline": "airline",
    "co2_noaa_global": "CO2, global",
    "solar_lean2000": "solar irradiance",
    "sterling_eri": "sterling",
    "road3d_5000": "roads, 5000 rows",
    "sunspots_monthly": "sunspots",
    "tide_portland_hourly": "tide",
    "births_us_daily": "births",
    "lake_huron": "Lake Huron",
    "macho_lightcurve": "light curve",
}

Grouped = dict[tuple[str, str, str, str], list[Row]]


def markdown(table: str, by_mode: dict[str, list[Row]]) -> str:
    """One table, of the rows of one mode or of both."""
    if not any(by_mode.values()):
        return "No runs yet."
    return MADE.get(table, predictions)(table, by_mode)


def grouped(by_mode: dict[str, list[Row]]) -> Grouped:
    """Rows by set, method, mode and settings, by number within each."""
    groups: Grouped = {}
    for mode, rows in by_mode.items():
        for row in rows:
            key = (row["set"], row["method"], mode, settings_of(row))
            groups.setdefault(key, []).append(row)
    order = list(NAMES)
    first = {key: i for i, key in enumerate(groups)}
    ranked = sorted(groups, key=lambda k: (order.index(k[0]) if k[0] in order else len(order), first[k]))
    return {key: sorted(groups[key], key=lambda row: row["number"]) for key in ranked}


def settings_of(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row["settings"].items() if value is not None)


def figures(rows: Iterable[Row], name: str) -> Array:
    """Of the rows that have it."""
    return np.array([row[name] for row in rows if isinstance(row.get(name), (int, float))], dtype=float)


def spread(values: Array, form: str = ".3g") -> str:
    """Mean ± sd, both to the digits that the sd has two of; the mean alone of one value."""
    if len(values) == 0 or not np.isfinite(values).all():
        return "–"
    if len(values) == 1:
        return shown(float(values[0]))
    sd = float(values.std(ddof=1))
    if sd == 0.0:
        return f"{shown(float(values[0]))} ± 0"
    digits = max(0, 1 - math.floor(math.log10(sd)))
    return f"{values.mean():.{digits}f} ± {sd:.{digits}f}"


def shown(value: float) -> str:
    """Three digits, without an exponent where it can be."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:.3g}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def runs(rows: list[Row], planned: int) -> str:
    """How many there are of how many there should be."""
    failed = [row for row in rows if "failed" in row]
    done = len(rows) - len(failed)
    return (f"{done}" if done >= planned else f"{done} of {planned}") + (f" ({len(failed)} failed)" if failed else "")


def seconds(rows: list[Row]) -> str:
    """Median; marked where other processes were at work."""
    values = figures(rows, "seconds")
    if len(values) == 0:
        return "–"
    middle, busy = float(np.median(values)), any((row.get("load") or 0.0) > _BUSY_LOAD for row in rows)
    return (f"{middle:.0f}" if middle >= 10.0 else f"{middle:.2g}") + ("*" if busy else "")


def predictions(table: str, by_mode: dict[str, list[Row]]) -> str:
    """RMSE, densities, coverage, seconds, evaluations; then paired tests."""
    lines = [
        "| set | method | runs | RMSE | over the sd | joint log density | a row | in 50 % | in 90 % | cost | seconds |",
        "| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    groups = grouped(by_mode)
    for (name, method, mode, _), rows in groups.items():
        planned = TABLES[table].numbers[mode]
        cells = [
            NAMES.get(name, name),
            called(method, mode),
            runs(rows, planned),
            *(spread(figures(rows, f)) for f in ("rmse", "standard_rmse", "log_density", "log_density_a_row")),
            *(percent(figures(rows, f)) for f in ("inside_50", "inside_90")),
            count(figures(rows, "cost")),
            seconds(rows),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += beside_published(table, groups)
    lines += paired(groups)
    return "\n".join(lines)


def called(method: str, mode: str) -> str:
    if method == "ours":
        return "ours" if mode == "default" else "the paper's recipe"
    return method if mode == "default" or method.endswith("kernel") else f"{method}, the paper's recipe"


def percent(values: Array) -> str:
    return f"{100 * values.mean():.0f} %" if len(values) else "–"


def count(values: Array) -> str:
    return f"{values.mean():,.0f}" if len(values) else "–"


def beside_published(table: str, groups: Grouped) -> list[str]:
    """The paper's figures beside ours, with what each is in."""
    lines: list[str] = []
    if table == "uci":
        lines = ["", "| set | figure | MASKERADE, published | FKL, published | the paper's recipe | ours |"]
        lines.append("| --- | --- | --: | --: | --: | --: |")
        for name, by_method in published.UCI.items():
            for place, figure in enumerate(("rmse", "log_density")):
                theirs = [f"{by_method[who][place]:g}" for who in ("MASKERADE", "FKL")]
                lines.append(
                    f"| {NAMES[name]} | {'log density' if place else 'RMSE'} | {' | '.join(theirs)} "
                    f"| {ours_there(groups, name, 'paper', figure)} | {ours_there(groups, name, 'default', figure)} |"
                )
    elif table in ("series", "ablation"):
        lines = compared(groups, published.SERIES, "RMSE over the sd", lambda rows: figures(rows, "standard_rmse"))
    elif table == "bank":
        squares = lambda rows: figures(rows, "standard_rmse") ** 2  # noqa: E731
        lines = compared(groups, published.BANK, "mean squared error, standardised", squares)
    elif table == "solar":
        lean = {"solar_lean2000": published.SOLAR["MASKERADE"]}
        for figure, text in (("rmse", "RMSE, W/m²"), ("standard_rmse", "RMSE over the sd")):
            lines += compared(groups, lean, text, functools.partial(figures, name=figure))
        lines.append(f"\nThe paper has {published.SOLAR['VSSGP']} for VSSGP.")
    return lines


def compared(groups: Grouped, theirs: dict[str, float], text: str, figure: Callable[[list[Row]], Array]) -> list[str]:
    lines = ["", f"| set | {text}: published | the paper's recipe | ours |", "| --- | --: | --: | --: |"]
    for name, value in theirs.items():
        cells = []
        for mode in ("paper", "default"):
            methods = ("ours", "information") if mode == "paper" else ("ours", "random")
            matching = [rows for (s, m, o, _), rows in groups.items() if s == name and m in methods and o == mode]
            cells.append(spread(figure(matching[0])) if matching else "–")
        lines.append(f"| {NAMES[name]} | {value} | {' | '.join(cells)} |")
    return lines


def ours_there(groups: Grouped, name: str, mode: str, figure: str) -> str:
    matching = [rows for (s, m, o, _), rows in groups.items() if (s, m, o) == (name, "ours", mode)]
    return spread(figures(matching[0], figure)) if matching else "–"


def paired(groups: Grouped) -> list[str]:
    """Every two methods on the splits that both have."""
    lines: list[str] = []
    keys = list(groups)
    for i, a in enumerate(keys):
        for b in keys[i + 1 :]:
            if a[0] != b[0]:
                continue
            cells = []
            for figure, better in (("rmse", -1.0), ("log_density", 1.0)):
                outcome = test(groups[a], groups[b], figure, better)
                cells += ["–", "–", "–"] if outcome is None else outcome
            if any(cell != "–" for cell in cells):
                names = f"{called(a[1], a[2])} | {called(b[1], b[2])}"
                lines.append(f"| {NAMES.get(a[0], a[0])} | {names} | {' | '.join(cells)} |")
    if not lines:
        return []
    head = [
        "",
        "Paired by split; p of Wilcoxon's signed ranks, two-sided (n pairs can give no less than 2 / 2^n).",
        "",
        "| set | a | b | RMSE, a − b | a better | p | log density, a − b | a better | p |",
        "| --- | --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    return head + lines


def test(a: list[Row], b: list[Row], figure: str, better: float) -> list[str] | None:
    """Mean difference ± its standard error, splits on which a is better, p; None for fewer than three pairs."""
    there = {row["number"]: row[figure] for row in b if isinstance(row.get(figure), (int, float))}
    own = [row for row in a if isinstance(row.get(figure), (int, float)) and row["number"] in there]
    difference = np.array([row[figure] - there[row["number"]] for row in own], dtype=float)
    if len(difference) < _FEWEST_PAIRS or not np.isfinite(difference).all():
        return None
    # equal splits left out, and exact: what "auto" does about them differs between versions of SciPy
    p = float(stats.wilcoxon(difference[difference != 0.0], method="exact").pvalue) if difference.any() else 1.0
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0.0 else 2
    won = int((better * difference > 0.0).sum())
    return [f"{difference.mean():+.{digits}f} ± {error:.{digits}f}", f"{won} of {len(difference)}", f"{p:.2g}"]


def evidence_by_nodes(table: str, by_mode: dict[str, list[Row]]) -> str:
    """Mean ± sd over repeats of the log evidence, and the sd that a run reports."""
    lines = [
        "| mode | observations | nodes | runs | log evidence, mean ± sd | median reported sd | cost | seconds |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for (_, _, mode, _), rows in grouped(by_mode).items():
        settings = rows[0]["settings"]
        reported = figures(rows, "log_evidence_sd")
        cells = [
            mode,
            f"{settings['observations']:,}",
            f"{settings['nodes']:,}",
            runs(rows, TABLES[table].numbers[mode]),
            spread(figures(rows, "log_evidence")) if len(rows) > 1 else f"{mean(rows, 'log_evidence'):.2f}",
            shown(float(np.median(reported))) if len(reported) else "–",
            count(figures(rows, "cost")),
            seconds(rows),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def of_forecasts(table: str, by_mode: dict[str, list[Row]]) -> str:
    """A row for every series and method; the best of each series in bold."""
    lines = [
        "| series | method | RMSE | over the sd | log density a row | in 50 % | in 90 % | seconds |",
        "| --- | --- | --: | --: | --: | --: | --: | --: |",
    ]
    groups = grouped(by_mode)
    for name in FORECASTS:
        own = {key: rows for key, rows in groups.items() if key[0] == name}
        own = dict(sorted(own.items(), key=lambda item: item[0][2] == "paper"))  # the recipe last
        errors = {key: mean(rows, "standard_rmse") for key, rows in own.items()}
        densities = {key: mean(rows, "log_density_a_row") for key, rows in own.items()}
        for key, rows in own.items():
            failed = [row["failed"] for row in rows if "failed" in row]
            method = called(key[1], key[2])
            if failed:
                lines.append(f"| {NAMES[name]} | {method} | {failed[0]} |  |  |  |  | |")
                continue
            several = sum(map(math.isfinite, errors.values())) > 1
            least = several and errors[key] == min(v for v in errors.values() if math.isfinite(v))
            most = several and densities[key] == max(v for v in densities.values() if math.isfinite(v))
            cells = [
                NAMES[name],
                method,
                spread(figures(rows, "rmse")),
                bold(spread(figures(rows, "standard_rmse")), least),
                bold(spread(figures(rows, "log_density_a_row")), most),
                *(percent(figures(rows, f)) for f in ("inside_50", "inside_90")),
                seconds(rows),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *ranks(groups)])


def ranks(groups: Grouped) -> list[str]:
    """Over the series that all methods but the recipe have: mean rank by error and by density, and mean coverage."""
    groups = {key: rows for key, rows in groups.items() if key[2] == "default"}
    methods = list(dict.fromkeys((m, mode) for _, m, mode, _ in groups))
    by: dict[tuple[str, tuple[str, str]], list[Row]] = {}
    for (name, method, mode, _), rows in groups.items():
        by[name, (method, mode)] = rows
    names = [n for n in FORECASTS if all(math.isfinite(mean(by.get((n, m), []), "rmse")) for m in methods)]
    if len(names) < 2 or len(methods) < 2:
        return []
    lines = [
        "",
        f"Over the {len(names)} series that every method has; rank 1 is best.",
        "",
        "| method | mean rank by RMSE | by log density | in 50 % | in 90 % | mean log density a row | worst |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    error = np.array([[mean(by[n, m], "rmse") for n in names] for m in methods])
    density = np.array([[mean(by[n, m], "log_density_a_row") for n in names] for m in methods])
    by_error, by_density = stats.rankdata(error, axis=0).mean(axis=1), stats.rankdata(-density, axis=0).mean(axis=1)
    for i in np.argsort(by_density, kind="stable"):
        inside = [100 * np.mean([mean(by[n, methods[i]], f) for n in names]) for f in ("inside_50", "inside_90")]
        lines.append(
            f"| {called(*methods[i])} | {by_error[i]:.1f} | {by_density[i]:.1f} "
            f"| {inside[0]:.0f} % | {inside[1]:.0f} % | {density[i].mean():.2f} | {density[i].min():.1f} |"
        )
    return lines


def mean(rows: list[Row], figure: str) -> float:
    values = figures(rows, figure)
    return float(values.mean()) if len(values) else math.nan


def bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


MADE: dict[str, Callable[[str, dict[str, list[Row]]], str]] = {
    "nodes": evidence_by_nodes,
    "forecasts": of_forecasts,
}
