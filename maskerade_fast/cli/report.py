"""Lines about a posterior and files of predictions, for `fit` and `predict`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import Array
from ..storage.output_files import replacing_text
from ..storage.predictions_csv import prediction_lines
from .columns import Selection

if TYPE_CHECKING:
    from ..model.inputs import Inputs
    from ..ops.mixture_prediction import Prediction
    from ..posterior.posterior import Posterior

_MOST_JOINT_ROWS = 200  # the joint density takes h^2 n^3 steps: here some seconds for h = 100


def summary(post: Posterior, seconds: float) -> Iterator[str]:
    """Evidence, sizes, evaluations and time, a line each."""
    yield f"Log evidence    {post.log_evidence:.2f} ± {post.log_evidence_sd:.2f} (nats)"
    chances = ", ".join(f"{n}: {p:.3f}" for n, p in enumerate(post.component_probabilities, start=1))
    yield f"Mixture size    {chances} (probability of each number of components)"
    last = post.history[-1]
    yield f"Evaluations     {last.evaluations} likelihoods; effective sample {post.effective_sample_size:.1f}"
    yield f"Time            {seconds:.1f} s"


def scores(post: Posterior, prediction: Prediction, X: Inputs, y: Array) -> Iterator[str]:
    """Error and log density of predictions of rows with targets."""
    rmse = float(np.sqrt(np.mean((prediction.mean - y) ** 2)))
    yield f"RMSE            {rmse:.4g} on {count(len(y), 'row')} (their sd: {float(np.std(y)):.4g})"
    joint = f", jointly {post.joint_log_density(X, y):.2f}" if len(y) <= _MOST_JOINT_ROWS else ""
    yield f"Log density     {float(np.mean(prediction.log_density(y))):.4f} a row (nats){joint}"


def write_predictions(
    destination: Path | Callable[[str], Any], post: Posterior, selection: Selection, rows: Array
) -> None:
    """Write a line for each of `rows` to a file, or by a function; rows without inputs have empty cells."""
    X, y = selection.X(post.standardiser.x_origin)[rows], selection.y()[rows]
    whole = selection.whole()[rows]
    actual = None if selection.target is None else y
    lines = prediction_lines(
        X, selection.input_names, post.predict(X[whole]), whole, actual, selection.target_name or "target"
    )
    if not isinstance(destination, Path):
        for line in lines:
            destination(line)
        return
    with replacing_text(destination) as file:
        file.writelines(lines)


def count(n: int, noun: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
