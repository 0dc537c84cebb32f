"""Problems whose evidence is computed by brute force and on which no setting was chosen.

    python -m bench.studies.unseen [--keep 8] [--draws 131072] [--out FILE]       # build/bench/unseen.json

Seeded data of 10 to 60 points, one or two tones or a smooth function, on even and uneven grids, fixed noise,
`Prior.paper` of 1 to 3 components. The evidence is by brute force: four scrambled Sobol nets of prior draws for each
size. Where the likelihood is too sharp for that, it is by importance sampling round the particles of tempered SMC, done
twice from scratch, and both have to agree within four of their standard errors with each other and with prior draws.
What has a standard error above 0.02 even so is left out, and listed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import maskerade_fast as mf
from bench import BUILD
from bench.studies.yardsticks import Estimate, SizeEstimate, over_sizes, prior_monte_carlo, tempered_smc
from maskerade_fast.adaptive.counted_posterior import CountedPosterior
from maskerade_fast.model.data import RegressionData
from maskerade_fast.quadrature.problem import Problem

SEED = 20_240_601
KINDS = ("one_tone", "two_tones", "smooth", "uneven_tone", "uneven_smooth")
NETS, PILOT, WORST = 4, 8192, 0.02
PARTICLES, NEIGHBOURS, IMPORTANCE = 512, 64, 2**15


def generate(index: int) -> dict[str, Any]:
    """Problem number `index`; the kinds take turns, everything else is random."""
    rng = np.random.default_rng([SEED, index])
    kind = KINDS[index % len(KINDS)]
    count = int(rng.integers(10, 61))
    noise = float(10.0 ** rng.uniform(-2.3, -1.0))
    x = np.sort(rng.random(count)) if kind.startswith("uneven") else np.linspace(0.0, 1.0, count)
    x = (x - x[0]) / (x[-1] - x[0])
    y = np.zeros(count)
    if kind.endswith("smooth"):
        spread = rng.uniform(0.08, 0.25)
        y += rng.normal(size=6) @ np.exp(-0.5 * ((x - rng.random((6, 1))) / spread) ** 2)
    else:
        for _ in range(2 if kind == "two_tones" else 1):
            y += rng.uniform(0.5, 1.0) * np.sin(2.0 * np.pi * (rng.uniform(0.5, 0.3 * count) * x + rng.random()))
    y = (y - y.mean()) / y.std() + np.sqrt(noise) * rng.normal(size=count)
    return {
        "name": f"{kind}_{count}_{index}",
        "X": x.tolist(),
        "y": ((y - y.mean()) / y.std()).tolist(),
        "noise_variance": round(noise, 6),
        "max_components": int(rng.integers(1, 4)),
    }


def target_of(problem: dict[str, Any]) -> CountedPosterior:
    """Likelihood and prior of a problem."""
    x, y = np.array(problem["X"]), np.array(problem["y"])
    prior = mf.Prior.paper(x, problem["max_components"], problem["noise_variance"])
    return CountedPosterior(Problem.of(RegressionData(x, y), prior))


def from_prior(problem: dict[str, Any], draws: int) -> Estimate:
    """Evidence by `NETS` nets of prior draws for each size."""
    rng = np.random.default_rng([SEED, draws])
    return prior_monte_carlo(target_of(problem), NETS * draws, rng, nets=NETS)


def round_particles(problem: dict[str, Any], seed: int) -> Estimate:
    """Evidence by importance sampling from normal distributions round the particles of tempered SMC, a tenth from the
    prior. Each distribution has the covariance of the nearest particles, so labels and modes need no care.
    """
    target, rng = target_of(problem), np.random.default_rng([SEED, seed])
    smc = tempered_smc(target, PARTICLES, rng)
    assert smc.mixtures is not None
    sizes = []
    for n in range(1, target.prior.max_components + 1):
        d = target.latent_map.dimension(n)
        own = smc.mixtures[np.flatnonzero(smc.mixtures.n_components == n)]
        centres = target.latent_map.inverse(own).values.reshape(-1, d)
        near = np.argsort(((centres[:, None] - centres) ** 2).sum(axis=2), axis=1)[:, :NEIGHBOURS]
        spread = centres[near] - centres[:, None]
        covariances = 1.5 * np.einsum("kia,kib->kab", spread, spread) / NEIGHBOURS + 1e-6 * np.eye(d)
        factors = np.linalg.cholesky(covariances)
        z = rng.normal(size=(IMPORTANCE, d))
        owner = rng.integers(len(centres), size=IMPORTANCE)
        xi = np.where(rng.random((IMPORTANCE, 1)) < 0.1, z, centres[owner] + np.einsum("mab,mb->ma", factors[owner], z))
        density = np.full(IMPORTANCE, -np.inf)
        for centre, factor in zip(centres, factors, strict=True):
            u = np.linalg.solve(factor, (xi - centre).T)
            density = np.logaddexp(density, -0.5 * (u * u).sum(axis=0) - np.log(np.diag(factor)).sum())
        normal = -0.5 * (xi * xi).sum(axis=1)
        proposal = np.logaddexp(np.log(0.1) + normal, np.log(0.9 / len(centres)) + density)
        latent = target.latent_map.latent(np.full(IMPORTANCE, n), xi.ravel())
        log_f = target.values(target.latent_map.forward(latent)) + normal - proposal
        f = np.exp(log_f - log_f.max())
        error = float(f.std() / f.mean() / np.sqrt(IMPORTANCE))
        sizes.append(SizeEstimate(float(np.log(f.mean()) + log_f.max()), error, xi, log_f))
    return over_sizes(target, lambda n: sizes[n - 1])


def with_evidence(problem: dict[str, Any], draws: int) -> dict[str, Any]:
    """Return the problem with its evidence, its standard error, and the method."""
    pilot = from_prior(problem, PILOT)
    if pilot.log_evidence_sd < 0.5 * WORST:
        estimate = from_prior(problem, draws)
        method = f"scrambled Sobol over the prior, {NETS} x {draws} likelihoods a size"
        value, error = estimate.log_evidence, estimate.log_evidence_sd
        by_size, other = estimate.by_size, None
    else:
        first, second = (round_particles(problem, seed) for seed in (0, 1))
        method = f"importance sampling round {PARTICLES} SMC particles, 2 x {IMPORTANCE} likelihoods a size"
        value = float(np.logaddexp(first.log_evidence, second.log_evidence) - np.log(2.0))
        both = float(np.hypot(first.log_evidence_sd, second.log_evidence_sd))
        error, other = 0.5 * both, first.log_evidence - second.log_evidence
        by_size = np.logaddexp(first.by_size, second.by_size) - np.log(2.0)
        # errors of a few prior draws are too small where the likelihood is sharp: only too high a value speaks
        if abs(other) > 4.0 * both or pilot.log_evidence - value > 4.0 * pilot.log_evidence_sd:
            error = np.inf
    return {
        **problem,
        "log_evidence": value,
        "standard_error": float(error),
        "log_evidence_by_size": by_size.tolist(),
        "method": method,
        "first_minus_second": other,
        "prior_draws": {"draws": NETS * PILOT, "log_evidence": pilot.log_evidence, "sd": pilot.log_evidence_sd},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Problems with their evidence that nobody tuned on.")
    parser.add_argument("--keep", type=int, default=8)
    parser.add_argument("--draws", type=int, default=2**17)
    parser.add_argument("--out", type=Path, default=BUILD / "unseen.json")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    index = 0
    while len(kept) < args.keep:
        problem = with_evidence(generate(index), args.draws)
        index += 1
        shown = {key: value for key, value in problem.items() if key not in ("X", "y")}
        print(json.dumps(shown), flush=True)
        if problem["standard_error"] <= WORST:
            kept.append(problem)
        else:
            left_out.append(shown)
        args.out.write_text(json.dumps({"problems": kept, "left_out": left_out}) + "\n")


if __name__ == "__main__":
    main()
