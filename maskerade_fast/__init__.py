"""maskerade_fast: Gaussian processes marginalised over spectral mixture kernels, by Bayesian quadrature.

``marginalise(X, y)`` is the whole method. Below it, arrays in and arrays out: distances between ragged mixtures,
batched Gram matrices, likelihoods and predictions; and the pieces of the quadrature, for loops of one's own.
``plotting`` draws a fit, its spectrum, evidence and weights, where matplotlib is installed.
"""

from . import _start as _start  # first: it minds interrupts while the others load
from . import plotting
from ._version import __version__
from .errors import (
    BackendUnavailableError,
    CollapsedInputsWarning,
    DataError,
    MissingDependencyError,
    OptimisationError,
    PrecisionWarning,
    UnequalMassWarning,
    UsageError,
)
from .model.data import RegressionData
from .model.draws import Draws
from .model.gmm import GMMBatch, GMMGradient, concat
from .model.latent import Latent, LatentMap, LogNormal
from .model.prior import Prior
from .model.reference_measure import PriorMeasure, ReferenceMeasure
from .model.units import Standardiser
from .ops.distances import energy_distance, energy_distance_vjp, gaussian_mmd2, gaussian_mmd2_vjp
from .ops.gp import GPPrediction, predict_gp
from .ops.gram import gram
from .ops.hyperkernel import hyperkernel, hyperkernel_matvec, hyperkernel_vjp
from .ops.joint_prediction import JointDensity, combine_gaussians_joint
from .ops.likelihood import LogLikelihood, log_likelihood
from .ops.metric import Metric
from .ops.mixture_prediction import Prediction, combine_gaussians
from .posterior.bands import Band
from .posterior.history import HistoryRow
from .posterior.posterior import Posterior, load
from .quadrature.acquisition_information import mutual_information
from .quadrature.acquisition_uncertainty import uncertainty
from .quadrature.evidence import Evidence, integrate
from .quadrature.surrogate import Surrogate
from .run.marginalise import marginalise
from .run.warm_up import warm_up

__all__ = [
    "BackendUnavailableError",
    "Band",
    "CollapsedInputsWarning",
    "DataError",
    "Draws",
    "Evidence",
    "GMMBatch",
    "GMMGradient",
    "GPPrediction",
    "HistoryRow",
    "JointDensity",
    "Latent",
    "LatentMap",
    "LogLikelihood",
    "LogNormal",
    "Metric",
    "MissingDependencyError",
    "OptimisationError",
    "Posterior",
    "PrecisionWarning",
    "Prediction",
    "Prior",
    "PriorMeasure",
    "ReferenceMeasure",
    "RegressionData",
    "Standardiser",
    "Surrogate",
    "UnequalMassWarning",
    "UsageError",
    "__version__",
    "combine_gaussians",
    "combine_gaussians_joint",
    "concat",
    "energy_distance",
    "energy_distance_vjp",
    "gaussian_mmd2",
    "gaussian_mmd2_vjp",
    "gram",
    "hyperkernel",
    "hyperkernel_matvec",
    "hyperkernel_vjp",
    "integrate",
    "load",
    "log_likelihood",
    "marginalise",
    "mutual_information",
    "plotting",
    "predict_gp",
    "uncertainty",
    "warm_up",
]
