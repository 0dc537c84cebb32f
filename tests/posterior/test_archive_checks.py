"""Well-formed saved posteriors of impossible numbers are refused by the name of the part."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import forged
import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.model.units import Standardiser
from maskerade_fast.posterior.archive_checks import check_values
from maskerade_fast.posterior.posterior import Posterior
from maskerade_fast.posterior.posterior_archive import from_arrays, to_arrays


def parts(post: Posterior | None = None) -> dict[str, Any]:
    """Fresh copies of the parts of a posterior as they are read."""
    return from_arrays(
        {name: np.array(a) for name, a in to_arrays(forged.posterior() if post is None else post).items()}
    )


@pytest.mark.parametrize("proposals", ["laplace", "prior"])
@pytest.mark.parametrize("trend", ["none", "linear"])
def test_fits_pass(proposals: str, trend: str) -> None:
    x = np.linspace(3.0, 9.0, 15) ** 1.1
    options: dict[str, Any] = {"nodes": 64, "max_components": 2, "seed": 0, "device": "cpu"}
    post = mf.marginalise(x, 1e6 + np.sin(x), budget=40, initial=20, proposals=proposals, trend=trend, **options)
    check_values(parts(post))


def test_a_made_up_one_passes() -> None:
    check_values(parts())


NAN, INF = np.nan, np.inf
ARRAYS: list[tuple[str, Any, float, str]] = [  # part, entry, number, words
    ("log_likelihoods", 0, NAN, "log_likelihoods: nan, expected a number below infinity"),
    ("log_likelihoods", 1, INF, "log_likelihoods: inf"),
    ("log_likelihoods", slice(None), -INF, "log_likelihoods: -inf, expected a finite number among them"),
    ("component_probabilities", 0, -0.1, "component_probabilities: -0.1, expected a probability"),
    ("component_probabilities", 1, 1.4, "component_probabilities: 1.4"),
    ("component_probabilities", 0, NAN, "component_probabilities: nan"),
    ("component_probabilities", 0, 0.61, "the sum of component_probabilities: 1.01, expected 1"),
    ("node_probabilities", 2, NAN, "node_probabilities: nan"),
    ("node_probabilities", 2, 0.0, "the sum of node_probabilities: 0.8"),
    ("pair_weights", (0, 0), NAN, "pair_weights[(0, 0)]: nan"),
    ("pair_weights", (0, 1), 0.2, "pair_weights less its transpose: 0.2"),
    ("pair_weights", (0, 0), -0.25, "the sum of pair_weights: 0.2"),
    ("pair_weights", (0, 0), 1e200, "pair_weights: entries up to 1e+200"),
    ("factor", (0, 0), INF, "factor[(0, 0)]: inf"),
    ("factor", (1, 1), 0.1, "factor: F F^T less pair_weights"),
    ("factor", (1, 1), 1e200, "factor: entries up to 1e+200"),
    ("history", (0, 0), 2.5, "history: counts: 2.5, expected whole numbers >= 0"),
    ("history", (0, 1), -3.0, "history: counts: -3.0"),
    ("history", (0, 1), INF, "history: counts: inf"),
    ("history", (0, 2), -1.0, "history: seconds: -1.0"),
    ("history", (0, 2), NAN, "history: seconds: nan"),
    ("history", (0, 3), NAN, "history: nan, expected no NaN"),
    ("history", (0, 4), -1.0, "history: log_evidence_sd: -1.0"),
]


@pytest.mark.parametrize(("name", "where", "number", "words"), ARRAYS)
def test_impossible_entries(name: str, where: Any, number: float, words: str) -> None:
    changed = parts()
    changed[name][where] = number
    with pytest.raises(ValueError, match=re.escape(words)):
        check_values(changed)


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("log_evidence", NAN, "log_evidence: nan"),
        ("log_evidence", INF, "log_evidence: inf"),
        ("log_evidence_sd", -0.1, "log_evidence_sd: -0.1"),
        ("log_evidence_sd", NAN, "log_evidence_sd: nan"),
    ],
)
def test_impossible_numbers(name: str, number: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_values({**parts(), name: number})


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Standardiser)])
@pytest.mark.parametrize("number", [NAN, INF, -INF, 1e200, -1e200])
def test_impossible_units(name: str, number: float) -> None:
    units = parts()["standardiser"]
    value = number if np.ndim(getattr(units, name)) == 0 else np.array([number])
    with pytest.raises(ValueError, match=f"^{name}: "):
        check_values({**parts(), "standardiser": dataclasses.replace(units, **{name: value})})


@pytest.mark.parametrize("name", ["x_range", "y_scale"])
@pytest.mark.parametrize("number", [0.0, -1.0, 1e-200])
def test_impossible_scales(name: str, number: float) -> None:
    units = parts()["standardiser"]
    value = number if name == "y_scale" else np.array([number])
    with pytest.raises(ValueError, match=f"^{name}: "):
        check_values({**parts(), "standardiser": dataclasses.replace(units, **{name: value})})


def test_mixtures_that_do_not_belong() -> None:
    g = parts()["mixtures_standardised"]
    big = mf.GMMBatch.from_list([([1.0] * 3, [1.0] * 3, [1.0] * 3)] * 3, [0.1] * 3)
    with pytest.raises(ValueError, match="mixtures: components: 3, expected at most 2"):
        check_values({**parts(), "mixtures_standardised": big})
    bare = mf.GMMBatch(g.offsets, g.weights, g.means, g.scales)
    with pytest.raises(ValueError, match="nodes: noise_variances: None, expected one a mixture"):
        check_values({**parts(), "nodes_standardised": bare})


@pytest.mark.slow
def test_what_passes_predicts_without_a_warning(tmp_path: Path) -> None:
    """Every number of a saved file, replaced in turn by extreme ones under right checksums."""
    members, path, passed, refused = forged.members(tmp_path), tmp_path / "forged.npz", 0, 0
    for which in range(len(members)):
        for where in range(16):
            for number in forged.NUMBERS:
                path.write_bytes(forged.forged(members, [("data", which, where, number)]))
                try:
                    post = mf.load(path)
                except mf.DataError:
                    refused += 1
                    continue
                passed += 1
                try:
                    prediction = post.predict([1.5, 2.5])
                except ValueError as error:  # numbers at the edge of the range may be refused later, in words
                    if "expected" in str(error):
                        continue
                    raise
                assert not np.isnan(prediction.quantile(0.3)).any()
    assert passed > 100
    assert refused > 500


def test_impossible_frequencies() -> None:
    for group in ("mixtures", "nodes"):
        for part in ("means", "scales"):
            changed = parts()
            getattr(changed[f"{group}_standardised"], part)[0, 0] = 1e200
            with pytest.raises(ValueError, match=rf"{group}: {part}: entries up to 1e\+200, expected at most 1e\+75"):
                check_values(changed)


@pytest.mark.parametrize(
    ("column", "entries", "words"),
    [
        (0, (9.0, 3.0), "history: steps of evaluations: -6.0, expected none below 0"),
        (2, (0.5, 0.25), "history: steps of seconds: -0.25, expected none below 0"),
        (5, (1.0, INF), "history: best log-likelihood: inf, expected numbers below infinity"),
    ],
)
def test_impossible_histories(column: int, entries: tuple[float, float], words: str) -> None:
    changed = parts()
    changed["history"] = np.repeat(changed["history"][:1], 2, axis=0)
    check_values(changed)
    changed["history"][:, column] = entries
    with pytest.raises(ValueError, match=words):
        check_values(changed)
    changed["history"] = changed["history"][:0]
    with pytest.raises(ValueError, match="history: rows: 0, expected one for each batch"):
        check_values(changed)


def test_units_of_a_small_type() -> None:
    """Compared in float64: 1e150 is no float32 number."""
    changed = parts()
    units = changed["standardiser"]
    for name in ("x_min", "x_range", "x_origin"):
        object.__setattr__(units, name, getattr(units, name).astype(np.float32))
    check_values(changed)
