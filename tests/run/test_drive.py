"""One way through any run: units, history, warnings, the callback, and Ctrl-C at every moment."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf
from maskerade_fast.model.data import RegressionData
from maskerade_fast.model.units import Standardiser
from maskerade_fast.posterior.history import HistoryRow
from maskerade_fast.quadrature.problem import Problem
from maskerade_fast.run.adaptive_run import AdaptiveRun
from maskerade_fast.run.budget import Limits
from maskerade_fast.run.drive import Run, drive
from maskerade_fast.run.prior_run import PriorRun
from maskerade_fast.storage.journal import Journal
from maskerade_fast.storage.recorder import NoRecord, Recorder

PACKAGE = Path(mf.__file__).parent
X = np.linspace(3.0, 5.0, 12)
Y = 100.0 + 7.0 * np.sin(9.0 * X)


class Bar:
    """What `drive` asks of a bar."""

    def __init__(self) -> None:
        self.n, self.texts = 0, list[str]()

    def update(self, more: int) -> None:
        self.n += more

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.texts.append(text)


@dataclasses.dataclass(frozen=True)
class Counted:
    row: HistoryRow
    failed_starts: int = 0


class Scripted:
    """A run of five steps that is interrupted where `at` says; it counts its posteriors."""

    def __init__(self, at: str = "") -> None:
        self.data = RegressionData(X, Y)
        self.units = Standardiser.from_data(self.data)
        self.problem = Problem.of(self.units.to_unit(self.data), mf.Prior.from_data(X, max_components=1))
        self.limits = Limits.checked(10, None, 10, 10)
        self.at, self.posteriors, self.closed = at, 0, False

    def steps(self) -> Iterator[Counted]:
        try:
            for k in range(1, 6):
                if self.at == f"before {k}":
                    raise KeyboardInterrupt
                yield Counted(HistoryRow(k, 3 * k, 0.1 * k, -float(k), 0.5, -0.5 * k), failed_starts=k)
        finally:
            self.closed = True

    def posterior(self, state: Counted) -> mf.Posterior:
        self.posteriors += 1
        if self.at == "posterior" and self.posteriors == 1:
            raise KeyboardInterrupt
        run = PriorRun(self.problem, self.limits, "random", 8, np.random.default_rng(0))
        (only,) = run.steps()
        row = HistoryRow(state.row.evaluations, state.row.cost, 9.0, -1.5, 0.25, -0.5)
        return dataclasses.replace(run.posterior(only), warnings=("its own",), history=(row,))


def shift() -> float:
    return -len(Y) * float(np.log(Y.std()))


def test_rows_and_result_are_in_the_users_units() -> None:
    run, bar, rows = Scripted(), Bar(), list[HistoryRow]()
    post = drive(run, run.units, bar, rows.append)
    assert [row.log_evidence for row in rows] == pytest.approx([-k + shift() for k in range(1, 6)])
    assert [row.best_log_likelihood for row in rows] == pytest.approx([-0.5 * k + shift() for k in range(1, 6)])
    assert post.history[:-1] == tuple(rows)
    assert post.history[-1].log_evidence == pytest.approx(-1.5 + shift())
    assert bar.n == 15
    assert bar.texts[-1] == f"log evidence {-5 + shift():.2f} ± 0.50"
    alone = run.posterior(Counted(rows[-1]))
    assert alone.standardiser.y_scale == 1.0
    assert post.standardiser is run.units
    np.testing.assert_array_equal(post.log_likelihoods, alone.log_likelihoods + shift())
    assert post.log_evidence == alone.log_evidence + shift()
    standardised = alone.predict(run.problem.data.X)
    np.testing.assert_allclose(post.predict(X).mean, Y.mean() + Y.std() * standardised.mean, rtol=1e-12)
    np.testing.assert_allclose(post.predict(X).variance, Y.var() * standardised.variance, rtol=1e-9)


def test_warnings_of_the_drive_come_first() -> None:
    run = Scripted()
    assert drive(run, run.units, Bar()).warnings == (
        "5 searches for the next batch ended abnormally; the best point they saw was used",
        "its own",
    )


@pytest.mark.parametrize(("at", "left"), [("before 2", 1), ("before 5", 4), ("posterior", 5), ("callback", 3)])
def test_an_interrupt_keeps_the_last_state(at: str, left: int) -> None:
    run = Scripted(at)

    def callback(row: HistoryRow) -> None:
        if at == "callback" and row.evaluations == 3:
            raise KeyboardInterrupt

    post = drive(run, run.units, Bar(), callback)
    assert [row.evaluations for row in post.history] == [*range(1, left + 1), left]
    assert post.warnings[0] == f"interrupted after {left} evaluations; the result rests on those"
    assert run.posteriors == (2 if at == "posterior" else 1)


def test_an_interrupt_between_a_state_and_its_row_keeps_both() -> None:
    """The state is taken over in one assignment; its row follows from it."""

    class Late(Counted):
        calls = 0

        @property
        def row(self) -> HistoryRow:
            Late.calls += 1
            if Late.calls == 1:
                raise KeyboardInterrupt
            return HistoryRow(1, 1, 0.1, -1.0, 0.5, -0.5)

    run = Scripted()
    state = Late.__new__(Late)
    object.__setattr__(state, "failed_starts", 0)
    run.steps = lambda: iter([state])  # type: ignore[method-assign]
    assert [row.evaluations for row in drive(run, run.units, Bar()).history] == [1, 1]


def test_an_interrupt_before_any_state_ends_the_run() -> None:
    run = Scripted("before 1")
    with pytest.raises(KeyboardInterrupt):
        drive(run, run.units, Bar())
    assert run.posteriors == 0


def test_a_callback_that_returns_true_ends_the_run() -> None:
    run = Scripted()
    post = drive(run, run.units, Bar(), lambda row: row.evaluations == 2)
    assert [row.evaluations for row in post.history] == [1, 2, 2]
    assert len(drive(run, run.units, Bar(), lambda row: np.True_).history) == 2
    truthy: Any = lambda row: 1  # noqa: E731 - only True ends a run
    assert len(drive(run, run.units, Bar(), truthy).history) == 6


def test_a_run_without_a_state_has_no_finite_likelihood() -> None:
    run = Scripted()
    run.steps = lambda: iter(())  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no drawn mixture has a finite likelihood"):
        drive(run, run.units, Bar())


@pytest.mark.parametrize("recipe", [PriorRun, AdaptiveRun])
def test_states_are_values(recipe: Any) -> None:
    """Any of them gives its posterior, also after others came."""
    scripted = Scripted()
    limits = Limits.checked(60, None, 20, 10)
    run: Run[Any] = recipe(scripted.problem, limits, "random", 64, np.random.default_rng(0))
    states = list(run.steps())
    assert len(states) > 2
    counts = [len(run.posterior(state).log_likelihoods) for state in (states[0], states[-1])]
    assert counts[0] < counts[1]
    with pytest.raises(dataclasses.FrozenInstanceError):
        states[0].row = None


def test_both_recorders_keep_to_the_protocol(tmp_path: Path) -> None:
    def evaluated(recorder: Recorder) -> tuple[float, np.ndarray]:
        problem = dataclasses.replace(Scripted().problem, recorder=recorder)
        with recorder:
            g = mf.GMMBatch.from_list([([1.0], [2.0], [1.0])], [0.1])
            values, gradient = problem.log_likelihoods_with_gradients(g)
            assert gradient.noise_variance is not None
            return recorder.seconds(), np.r_[problem.log_likelihoods(g), values, gradient.weights]

    path = tmp_path / "journal"
    plain = evaluated(NoRecord())
    written, read = evaluated(Journal(path, {"seed": 0})), evaluated(Journal(path, {"seed": 0}))
    for seconds, arrays in (written, read):
        assert seconds >= 0.0
        np.testing.assert_array_equal(arrays, plain[1])
    assert not issubclass(Journal, NoRecord)


def test_runs_know_nothing_of_units() -> None:
    """Of a run's modules only the drive, the result and `marginalise` name the standardiser."""
    users = set()
    beside = [PACKAGE / f"{m}.py" for m in ("quadrature/problem", "storage/journal", "storage/recorder")]
    for path in sorted((PACKAGE / "run").glob("*.py")) + beside:
        names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(ast.parse(path.read_text()))}
        if names & {"Standardiser", "standardiser", "log_density_shift", "shifted"}:
            users.add(path.name)
    assert users == {"drive.py", "result.py", "marginalise.py"}
