"""The row that a run reports after each batch."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class HistoryRow:
    """State of a run after one batch.

    Attributes
    ----------
    evaluations : int
        Likelihoods evaluated so far.
    cost : int
        The same, where a value with gradient counts as 3.
    seconds : float
        Since the start.
    log_evidence, log_evidence_sd : float
        Natural log of the evidence, and the sd of its error.
    best_log_likelihood : float
        Largest of all mixtures so far. `marginalise` reports and returns it and `log_evidence` in the user's units.
    """

    evaluations: int
    cost: int
    seconds: float
    log_evidence: float
    log_evidence_sd: float
    best_log_likelihood: float

    def shifted(self, shift: float) -> HistoryRow:
        """The row in units in which log densities of the data are larger by `shift`."""
        log_evidence, best = self.log_evidence + shift, self.best_log_likelihood + shift
        return replace(self, log_evidence=log_evidence, best_log_likelihood=best)

    def since(self, before: HistoryRow | None) -> tuple[int, float]:
        """Cost and seconds of this batch alone: from the row before, or from the start."""
        return (self.cost, self.seconds) if before is None else (self.cost - before.cost, self.seconds - before.seconds)
