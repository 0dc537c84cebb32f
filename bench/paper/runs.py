"""The runs of every table: data, splits, settings, caps. `TABLES` is what ``python bench/paper`` can make."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import peers, recipes
from .data import Split, fold, last_tenth, load, random_tenth, withheld_runs
from .harness import Row, Run

UCI_SETS = ("yacht", "autompg", "concrete", "airfoil")
SERIES_SETS = ("airline", "co2_noaa_global")
BANK_SETS = ("concrete", "airfoil")
TIMED_SETS = ("sterling_eri", "road3d_5000")
NODES, OBSERVATIONS = (100, 1000, 10_000), (100, 500, 1000)
_CURVE_POINTS = 160  # of a forecast that are kept for pictures


@dataclass(frozen=True)
class Forecast:
    """A series to forecast: rows of a season, and the unit of its inputs."""

    season: int | None
    unit: str


FORECASTS = {
    "airline": Forecast(12, "month"),
    "co2_noaa_global": Forecast(12, "year"),
    "sunspots_monthly": Forecast(132, "year"),
    "tide_portland_hourly": Forecast(25, "hour"),
    "births_us_daily": Forecast(7, "day"),
    "lake_huron": Forecast(None, "year"),
    "solar_lean2000": Forecast(11, "year"),
    "sterling_eri": Forecast(None, "working day"),
    "macho_lightcurve": Forecast(None, "day"),
}
FORECAST_ROWS = 2000  # at most, of the first nine tenths


@dataclass(frozen=True)
class Options:
    """What the command line gives to a table.

    `quick` is the airline series at settings that mean nothing, to see that everything runs.
    """

    mode: str
    folder: Path | None
    sets: tuple[str, ...]
    numbers: range | None
    cap: float | None
    budget: int | None
    quick: bool = False
    methods: tuple[str, ...] = ()

    def chosen(self, sets: Any) -> list[str]:
        known = [*sets]
        return [name for name in known if not self.sets or name in self.sets]


@dataclass(frozen=True)
class Table:
    """A table: its title, the runs of each set in either mode, its sets, and what makes the runs."""

    title: str
    numbers: dict[str, int]
    sets: tuple[str, ...]
    runs: Callable[[Options], Iterator[Run]]


def _of_rows(o: Options) -> dict[str, Any]:
    """Settings for rows of several inputs, by mode."""
    if o.mode == "default":
        return {"components": 2, "budget": o.budget or 2500}
    return {"components": 5, "budget": o.budget or 500, "batch_size": 10}


def uci(o: Options) -> Iterator[Run]:
    """Four sets, a tenth of the rows held out at random; the MAP kernel beside the default."""
    settings = _of_rows(o)
    for name in o.chosen(UCI_SETS):
        for number in numbers(o, UCI_TABLE):
            yield from ours_and_map(o, name, number, random_tenth, settings, cap=120.0, map_too=o.mode == "default")


def _of_series(o: Options) -> dict[str, Any]:
    """Settings for one input axis, by mode."""
    return {"components": 5, "budget": o.budget or (2500 if o.mode == "default" else 500)}


def series(o: Options) -> Iterator[Run]:
    """Airline and CO2, a tenth of the rows held out at random; the kernel of largest likelihood beside the default."""
    settings = _of_series(o)
    for name in o.chosen(("airline",) if o.quick else SERIES_SETS):
        for number in numbers(o, SERIES_TABLE):
            yield from ours_and_map(o, name, number, random_tenth, settings, cap=120.0, map_too=o.mode == "default")


def solar(o: Options) -> Iterator[Run]:
    """Five runs of twenty years withheld from the solar series."""
    settings = _of_series(o)
    for name in o.chosen(("solar_lean2000",)):
        for number in numbers(o, SOLAR_TABLE):
            yield from ours_and_map(
                o, name, number, lambda table, _: withheld_runs(table), settings, cap=120.0, map_too=o.mode == "default"
            )


def bank(o: Options) -> Iterator[Run]:
    """Three times five folds of two sets, as in BaNK's protocol."""
    settings = _of_rows(o)
    for name in o.chosen(BANK_SETS):
        for number in numbers(o, BANK_TABLE):
            yield from ours_and_map(o, name, number, fold, settings, cap=120.0)


def timed(o: Options) -> Iterator[Run]:
    """Large sets under a budget of seconds, which is the cap."""
    cap = o.cap or 120.0
    for name in o.chosen(TIMED_SETS):
        settings = {"components": 5, "budget": o.budget, "time_budget": cap}
        if o.mode == "paper":
            settings |= {"initial": 100}
        for number in numbers(o, TIMED_TABLE):
            yield from ours_and_map(o, name, number, random_tenth, settings, cap=cap)


def ablation(o: Options) -> Iterator[Run]:
    """Acquisitions, and the spectral mixture kernel of largest likelihood; the same splits for all."""
    for name in o.chosen(("airline",) if o.quick else SERIES_SETS):
        for number in numbers(o, ABLATION_TABLE):
            for acquisition in ("information", "uncertainty", "random"):
                settings = {"components": 5, "budget": o.budget or 500, "acquisition": acquisition}
                yield ours(o, name, number, random_tenth, settings, cap=120.0, method=acquisition)
            yield kernel(o, name, number, random_tenth, 5, cap=120.0, likelihood_only=True)


def nodes(o: Options) -> Iterator[Run]:
    """Evidence of airfoil by the number of quadrature nodes, for three numbers of observations."""

    def work(count: int, settings: dict[str, Any], seed: int) -> Callable[[float], Row]:
        def run(cap: float) -> Row:
            table = load("airline" if o.quick else "airfoil", o.folder)
            rows = np.random.default_rng(seed).permutation(len(table))[:count]
            split = Split(table[rows, :-1], table[rows, -1], table[:0, :-1], table[:0, -1])
            start = time.perf_counter()
            post = recipes.fit(split, o.mode, seed=seed, time_budget=cap, **settings)
            return {**recipes.spent(post, split), "seconds": time.perf_counter() - start}

        return run

    name = "airline" if o.quick else "airfoil"
    for number in numbers(o, NODES_TABLE):
        for count in (100,) if o.quick else OBSERVATIONS:
            for size in (100,) if o.quick else NODES:
                settings = {"components": 5, "budget": o.budget or 300, "nodes": size}
                key = {**settings, "observations": count}
                if o.sets and name not in o.sets:
                    continue
                yield Run(name, "ours", number, key, work(count, settings, number), o.cap or 300.0)


def forecasts(o: Options) -> Iterator[Run]:
    """The last tenth of nine series, from at most the latest 2000 rows before it."""
    for name in o.chosen(("airline",) if o.quick else FORECASTS):
        season = FORECASTS[name].season
        for number in numbers(o, FORECASTS_TABLE):
            settings: dict[str, Any] = {"components": 5, "rows": FORECAST_ROWS}
            settings |= {"budget": o.budget or (2500 if o.mode == "default" else 500)}
            cap = o.cap or 300.0
            if wanted(o, "ours"):
                yield Run(name, "ours", number, settings, forecast_by_us(o, name, settings, number), cap)
            if o.mode == "paper":
                continue  # the peers are the same in both
            kind = {"components": 5, "rows": FORECAST_ROWS, "trend": "linear", "starts": 6}
            if wanted(o, "ML kernel"):
                yield Run(name, "ML kernel", number, kind, forecast_by_kernel(o, name, kind, number), cap)
            for peer in peers.PEERS:
                if wanted(o, peer):
                    own = {"rows": FORECAST_ROWS, "season": season}
                    yield Run(name, peer, number, own, forecast_by_peer(o, name, peer, season), cap)


def forecast_by_us(o: Options, name: str, settings: dict[str, Any], seed: int) -> Callable[[float], Row]:
    own = {key: value for key, value in settings.items() if key != "rows"}

    def run(cap: float) -> Row:
        split = forecast_split(o, name)
        start = time.perf_counter()
        post = recipes.fit(split, o.mode, seed=seed, time_budget=cap, **own)
        prediction = post.predict(split.X_new)
        figures = {**recipes.score(split, prediction), "seconds": time.perf_counter() - start}
        return {**figures, **recipes.spent(post, split), "curve": curve(split, prediction)}

    return run


def forecast_by_kernel(o: Options, name: str, kind: dict[str, Any], seed: int) -> Callable[[float], Row]:
    def run(cap: float) -> Row:
        split = forecast_split(o, name)
        start = time.perf_counter()
        own = {key: kind[key] for key in ("components", "trend", "starts")}
        prediction, _, took = recipes.best_kernel(split, seed=seed, likelihood_only=True, **own)
        figures = {**recipes.score(split, prediction), "seconds": time.perf_counter() - start}
        return {**figures, **took, "curve": curve(split, prediction)}

    return run


def forecast_by_peer(o: Options, name: str, peer: str, season: int | None) -> Callable[[float], Row]:
    def run(cap: float) -> Row:
        split = forecast_split(o, name)
        start = time.perf_counter()
        prediction = peers.PEERS[peer](split, season)
        figures = {**recipes.score(split, prediction), "seconds": time.perf_counter() - start}
        return {**figures, "curve": curve(split, prediction)}

    return run


def forecast_split(o: Options, name: str) -> Split:
    return last_tenth(load(name, o.folder), FORECAST_ROWS)


def curve(split: Split, prediction: Any) -> dict[str, list[float]]:
    """Mean and quantiles at some of the held-out rows, to four digits beside the series' spread."""
    rows = np.unique(np.linspace(0, len(split.y_new) - 1, _CURVE_POINTS).astype(int))
    digits = max(0, 3 - int(np.floor(np.log10(split.y_scale))))
    low, lower, upper, high = (q[rows] for q in prediction.quantile([0.05, 0.25, 0.75, 0.95]))
    parts = {"mean": prediction.mean[rows], "q05": low, "q25": lower, "q75": upper, "q95": high}
    return {"rows": rows.tolist(), **{name: np.round(part, digits).tolist() for name, part in parts.items()}}


# ---- parts of the above ----


def ours_and_map(
    o: Options,
    name: str,
    number: int,
    split: Callable[[Any, int], Split],
    settings: dict[str, Any],
    *,
    cap: float,
    map_too: bool = False,
) -> Iterator[Run]:
    yield ours(o, name, number, split, settings, cap=cap)
    if map_too:
        yield kernel(o, name, number, split, settings["components"], cap=cap, likelihood_only=False)


def ours(
    o: Options,
    name: str,
    number: int,
    split: Callable[[Any, int], Split],
    settings: dict[str, Any],
    *,
    cap: float,
    method: str = "ours",
) -> Run:
    def work(cap: float) -> Row:
        given = {"time_budget": cap, **settings}
        return recipes.measured(split(load(name, o.folder), number), o.mode, seed=number, **given)

    return Run(name, method, number, settings, work, o.cap or cap)


def kernel(
    o: Options,
    name: str,
    number: int,
    split: Callable[[Any, int], Split],
    components: int,
    *,
    cap: float,
    likelihood_only: bool,
) -> Run:
    """The best single kernel, with the trend of the default."""
    settings = {"components": components, "trend": "linear", "starts": 6, "steps": 10 if o.quick else 60}

    def work(_: float) -> Row:
        given = {**settings, "likelihood_only": likelihood_only, "seed": number}
        return recipes.measured_kernel(split(load(name, o.folder), number), **given)

    return Run(name, "ML kernel" if likelihood_only else "MAP kernel", number, settings, work, o.cap or cap)


def numbers(o: Options, table: Table) -> range:
    if o.quick:
        return range(1)
    return range(table.numbers[o.mode]) if o.numbers is None else o.numbers


def wanted(o: Options, method: str) -> bool:
    return not o.methods or method in o.methods


UCI_TABLE = Table("UCI sets, a tenth held out at random", {"default": 10, "paper": 3}, UCI_SETS, uci)
SERIES_TABLE = Table("Airline and CO2, a tenth held out at random", {"default": 10, "paper": 10}, SERIES_SETS, series)
SOLAR_TABLE = Table(
    "Solar irradiance, five runs of 20 years withheld", {"default": 10, "paper": 10}, ("solar_lean2000",), solar
)
BANK_TABLE = Table("Three times five folds, as BaNK", {"default": 15, "paper": 15}, BANK_SETS, bank)
TIMED_TABLE = Table("Sterling and roads under a budget of seconds", {"default": 3, "paper": 3}, TIMED_SETS, timed)
ABLATION_TABLE = Table("What each part adds", {"default": 10, "paper": 10}, SERIES_SETS, ablation)
NODES_TABLE = Table("Evidence of airfoil by quadrature nodes", {"default": 5, "paper": 5}, ("airfoil",), nodes)
FORECASTS_TABLE = Table("Forecasts of the last tenth", {"default": 1, "paper": 1}, tuple(FORECASTS), forecasts)

TABLES = {
    "uci": UCI_TABLE,
    "series": SERIES_TABLE,
    "solar": SOLAR_TABLE,
    "bank": BANK_TABLE,
    "nodes": NODES_TABLE,
    "ablation": ABLATION_TABLE,
    "timed": TIMED_TABLE,
    "forecasts": FORECASTS_TABLE,
}
