"""The reference: float64 loops written straight from the formulas, sharing no code with the package.

Slow on purpose. It meets the golden numbers (`test_golden.py`), and every path of the package meets it.
A mixture is a plain tuple ``(weights (n,), means (n, D), scales (n, D))`` and a batch is a list of mixtures;
`mixtures_of` reads them out of a GMMBatch. Gradients are flat, (J,), (J, D), (J, D), as in GMMGradient. The
sections that the modules name are those of docs/how-it-works/mathematics.md.
"""

# ruff: noqa: F401
from oracle.distances import atoms, energy_distance, energy_distance_vjp, gap, gaussian_mmd2, gaussian_mmd2_vjp
from oracle.gp import predict_gp
from oracle.grams import gram, kernel, noise_table, products
from oracle.hyperkernels import covariance_from_distance, hyperkernel, hyperkernel_vjp, squared_distance
from oracle.likelihood import log_likelihood, log_likelihood_gradient, normal_log_density
from oracle.mixture_prediction import PointwiseMixture, combine_gaussians, combine_gaussians_joint
from oracle.mixtures import Array, Batch, Mixture, central_differences, mixtures_of
from oracle.prior import dirichlet_log_density, from_latent, prior_log_density
from oracle.quadrature import (
    Evidence,
    Surrogate,
    covariance_with_integral,
    fit_surrogate,
    integrate,
    mutual_information,
    profile_log_likelihood,
    profile_outputscale,
    surrogate_covariance,
    surrogate_mean,
    uncertainty,
    warp,
)
