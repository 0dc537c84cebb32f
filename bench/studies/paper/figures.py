"""The qualitative figures: ``python -m bench.studies.paper figures [FIGURE ...] --out docs/pictures``.

spectra    posterior spectra for 1-3 and 1-8 components on data of a five-component kernel, in both modes
co2        the last fifth of the CO2 record from the first four fifths, in both modes
schematic  kernels, their spectra, and the surrogate of the likelihood over them
forecasts  the forecasts of docs/measured/forecasts.md, from the rows of the results
panels     what ``maskerade-fast fit --plot OUT.png --panels`` shows of the airline series
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import maskerade_fast as mf
from bench import RESULTS
from maskerade_fast import plotting
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem

from . import recipes
from .data import Absent, Array, Split, from_five_components, holding_out, last_tenth, load
from .harness import path_of, read_rows
from .runs import FORECAST_ROWS, FORECASTS
from .summaries import NAMES

_DPI = 110
_BLUE, _RED, _BLACK, _GREY = "#2166ac", "#d55e00", "#1a1a1a", "#8c8c8c"
_METHODS = {  # of forecasts: colour and stroke
    "ML kernel": ("#e69f00", "-"),
    "scikit-learn GP": ("#009e73", "--"),
    "ETS": ("#cc79a7", "-."),
    "SARIMAX": ("#d55e00", ":"),
}
_MODE_NAMES = {"paper": "the paper's recipe", "default": "the default"}
_SETTINGS: dict[str, dict[str, Any]] = {"paper": {"budget": 300, "nodes": 1024}, "default": {"budget": 2500}}


def draw(names: list[str], folder: Path | None, target: Path) -> int:
    """Draw the named figures, or all; those whose data are absent are skipped with a line."""
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        print(f"figures: no {unknown[0]}, expected some of {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    target.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        try:
            figure = FIGURES[name](folder)
        except Absent as reason:
            print(f"skipped {name}: {reason}", file=sys.stderr)
            continue
        path = target / f"{name}.png"
        figure.savefig(path, dpi=_DPI, metadata={"Software": None})
        print(f"wrote {path}", file=sys.stderr, flush=True)
    return 0


def spectra(_: Path | None) -> Any:
    """Two rows of panels, a mode each; the kernel that the data were drawn from is dashed."""
    split, (weights, means, scales) = from_five_components()
    frequencies = np.linspace(0.0, 2.6, 700)
    bells = np.exp(-0.5 * ((frequencies - means[:, None]) / scales[:, None]) ** 2)
    true = 0.5 * (weights / (np.sqrt(2.0 * np.pi) * scales)) @ bells
    figure = new_figure(10.0, 6.4)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, mode in zip(panels, ("paper", "default"), strict=True):
        for ax, most in zip(row, (3, 8), strict=True):
            post = recipes.fit(split, mode, seed=0, components=most, **_SETTINGS[mode])
            plotting.plot_spectrum(post, frequencies, kernels=80, ax=dressed(ax))
            ax.plot(frequencies, true, color=_RED, linewidth=1.5, linestyle="--", label="drawn from")
            missed = recipes.score(split, post.predict(split.X_new))
            ax.set_title(
                f"{_MODE_NAMES[mode]}, 1–{most} components: log evidence "
                f"{post.log_evidence + len(split.y) * np.log(split.y_scale):.1f}, held-out RMSE {missed['rmse']:.2f}",
                fontsize="small",
            )
            ax.set(ylim=(1e-3, 20.0), xlabel="" if mode == "paper" else "frequency (cycles per unit of x)")
            ax.set_ylabel("spectral density" if most == 3 else "")
            ax.legend(frameon=False, fontsize="small", loc="upper right")
    return figure


def co2(folder: Path | None) -> Any:
    """The record from 1980 with its last fifth held out, both modes on one scale."""
    table = load("co2_noaa_global", folder)
    split = holding_out(table, np.arange(int(0.8 * len(table)), len(table)))
    figure = new_figure(10.0, 7.0)
    for ax, mode in zip(figure.subplots(2, 1, sharex=True, sharey=True), ("paper", "default"), strict=True):
        post = recipes.fit(split, mode, seed=0, components=5, **_SETTINGS[mode])
        plotting.plot_fit(post, split.X, split.y, split.X_new, split.y_new, ax=dressed(ax), y_label="CO2 (ppm)")
        scores = recipes.score(split, post.predict(split.X_new))
        text = f"{_MODE_NAMES[mode]}: RMSE {scores['rmse']:.2f} ppm, {100 * scores['inside_90']:.0f} % in the 90 % band"
        ax.text(0.01, 0.9, text, transform=ax.transAxes)
        ax.set(xlabel="" if mode == "paper" else "year", ylim=(300.0, 460.0))
    return figure


def schematic(_: Path | None) -> Any:
    """A family of kernels with one free frequency, and what the quadrature sees of it."""
    chosen, colours = (0.6, 1.5, 2.6), ("#0072b2", "#e69f00", "#cc79a7")
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(0.0, 3.0, 14))
    y = np.sin(2.0 * np.pi * 1.5 * x + 0.4) + 0.3 * rng.normal(size=len(x))
    family = np.linspace(0.02, 3.2, 240)

    def mixtures(frequencies: Array) -> mf.GMMBatch:
        return mf.GMMBatch.from_list(
            [([0.7, 0.3], [m, 0.1], [0.12, 0.25]) for m in frequencies], np.full(len(frequencies), 0.2)
        )

    def log_values(g: mf.GMMBatch) -> Array:
        return np.asarray(CountedPosterior(Problem.of(RegressionData(x, y), prior_of(x))).values(g))

    figure = new_figure(12.0, 3.5)
    kernel_ax, spectrum_ax, surrogate_ax = figure.subplots(1, 3)
    lags, frequencies = np.linspace(0.0, 3.0, 400), np.linspace(0.0, 3.4, 500)
    for m, colour in zip(chosen, colours, strict=True):
        g = mixtures(np.array([m]))
        kernel_ax.plot(lags, np.asarray(mf.gram(g, lags, [0.0]))[0, :, 0], color=colour)
        bells = np.exp(-0.5 * ((frequencies - g.means) / g.scales) ** 2) / (np.sqrt(2.0 * np.pi) * g.scales)
        spectrum_ax.fill_between(frequencies, 0.5 * g.weights @ bells, color=colour, alpha=0.35, linewidth=0.0)
        spectrum_ax.plot(frequencies, 0.5 * g.weights @ bells, color=colour, linewidth=1.2)
    seen = np.array([0.15, 0.6, 1.05, 1.3, 1.5, 1.85, 2.6, 3.0])
    surrogate = mf.Surrogate.fit(mixtures(seen), log_values(mixtures(seen)))
    everywhere = mixtures(family)
    mean, sd = np.asarray(surrogate.mean(everywhere)), np.sqrt(np.diag(np.asarray(surrogate.covariance(everywhere))))
    low, high = np.maximum(mean - 2.0 * sd, 0.0), np.maximum(mean + 2.0 * sd, 0.0)

    def unwarped(z: Array) -> Array:
        return surrogate.epsilon + 0.5 * z**2

    truth = np.exp(log_values(everywhere) - surrogate.log_offset)
    surrogate_ax.fill_between(
        family, unwarped(low), unwarped(high), color=_BLUE, alpha=0.2, linewidth=0.0, label="surrogate ± 2 sd"
    )
    surrogate_ax.plot(family, unwarped(mean), color=_BLUE, label="surrogate")
    surrogate_ax.plot(family, truth, color=_GREY, linestyle="--", label="likelihood")
    surrogate_ax.plot(seen, np.exp(log_values(mixtures(seen)) - surrogate.log_offset), "o", color=_BLACK, markersize=4)
    for m, colour in zip(chosen, colours, strict=True):
        surrogate_ax.axvline(m, color=colour, linewidth=1.0, alpha=0.7)
    kernel_ax.set(title="kernels", xlabel="lag", ylabel="covariance")
    spectrum_ax.set(title="their spectra", xlabel="frequency", ylabel="density", ylim=(0.0, None))
    surrogate_ax.set(
        title="likelihood over kernels, by evaluations", xlabel="frequency of the kernel's tone", ylim=(0.0, 1.6)
    )
    surrogate_ax.set_ylabel("likelihood / its largest")
    surrogate_ax.legend(frameon=False, fontsize="small", loc="upper left")
    for ax in (kernel_ax, spectrum_ax, surrogate_ax):
        dressed(ax)
    return figure


def forecasts(folder: Path | None) -> Any:
    """A panel a series: the end of what was learned from, what came, ours with bands, the others' means."""
    rows = read_rows(path_of("forecasts", "default", RESULTS / "paper"))
    curves = {(row["set"], row["method"]): row for row in rows if "curve" in row}
    figure = new_figure(13.0, 9.6)
    panels = figure.subplots(3, 3).ravel()
    for ax, (name, series) in zip(panels, FORECASTS.items(), strict=True):
        split = last_tenth(load(name, folder), FORECAST_ROWS)
        draw_forecast(dressed(ax), split, {m: row for (s, m), row in curves.items() if s == name})
        ax.set_title(NAMES[name], fontsize="medium", loc="left")
        ax.set_xlabel(series.unit)
    handles = {text: handle for ax in panels for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=8, frameon=False)
    return figure


def draw_forecast(ax: Any, split: Split, by_method: dict[str, Any]) -> None:
    before = slice(-min(len(split.y), 2 * len(split.y_new)), None)
    few = max(1, len(split.y_new) // 400)
    style: dict[str, Any] = {"linewidth": 0.8 if len(split.y_new) > 100 else 1.0}
    ax.plot(split.X[before, 0][::few], split.y[before][::few], color=_GREY, **style)
    ours = by_method.get("ours")
    if ours is not None:
        at = split.X_new[ours["curve"]["rows"], 0]
        band: Callable[[str, str, float, str], Any] = lambda low, high, alpha, label: ax.fill_between(  # noqa: E731
            at, ours["curve"][low], ours["curve"][high], color=_BLUE, alpha=alpha, linewidth=0.0, label=label
        )
        band("q05", "q95", 0.18, "ours, 90 %")
        band("q25", "q75", 0.3, "50 %")
        ax.plot(at, ours["curve"]["mean"], color=_BLUE, linewidth=1.4, label="mean")
    for method, (colour, stroke) in _METHODS.items():
        if method in by_method:
            there = by_method[method]["curve"]
            at = split.X_new[there["rows"], 0]
            ax.plot(at, there["mean"], color=colour, linestyle=stroke, linewidth=1.1, label=method)
    ax.plot(split.X_new[::few, 0], split.y_new[::few], ".", color=_BLACK, markersize=2.5, label="what came")
    everything = np.concatenate([split.y[before], split.y_new])
    margin = 0.6 * float(np.ptp(everything))
    bottom, top = ax.get_ylim()
    ax.set_ylim(max(bottom, everything.min() - margin), min(top, everything.max() + margin))


def panels(_: Path | None) -> Any:
    split = last_tenth(load("airline", None))
    post = recipes.fit(split, "default", seed=0, components=5, budget=1500)
    labels = {"x_label": "month", "y_label": "passengers (thousands)"}
    return plotting.plot_panels(post, split.X, split.y, split.X_new, split.y_new, **labels)[0].figure


def prior_of(x: Array) -> mf.Prior:
    """Return any prior: likelihoods of mixtures do not depend on it."""
    return mf.Prior.from_data(x, max_components=2)


def new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def dressed(ax: Any) -> Any:
    """As the package's own pictures are."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color=_GREY, alpha=0.2, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


FIGURES: dict[str, Callable[[Path | None], Any]] = {
    "spectra": spectra,
    "co2": co2,
    "schematic": schematic,
    "forecasts": forecasts,
    "panels": panels,
}
