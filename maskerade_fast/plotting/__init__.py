"""Pictures of a fit: predictions with bands, the spectrum under the posterior, the evidence by batch, the weights.

They need matplotlib, the extra `plot`. Every function draws into `ax`, or into a new figure where `ax` is None; saves
the figure to `path`, if that is not None; and returns the Axes. Without matplotlib it raises MissingDependencyError.
Colour-blind readers can tell the colours apart.
"""

from .evidence import plot_evidence
from .fit import plot_fit
from .panels import plot_panels
from .spectrum import plot_spectrum
from .weights import plot_weights

__all__ = ["plot_evidence", "plot_fit", "plot_panels", "plot_spectrum", "plot_weights"]
