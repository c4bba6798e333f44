"""Gaussian-process regression on a small grid, for a search without any model of the engine.

Knows coordinates and worths only. Matern 5/2 with one length scale an axis; the scales maximise
the marginal likelihood with a weak log-normal prior (Rasmussen and Williams 2006, chapters 2, 5).
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize
from scipy.stats import norm

from tasks.domain.search.step_model import Floats

NUGGET = 1e-4  # of the worths' variance: repeats are nearly exact
PRIOR_LOG_SD = 1.0  # length scales are taken to be half of an axis, within a factor of e


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GaussianProcess:
    """A fitted process: inputs (n, d) in 0..1, standardised outputs, length scales (d,)."""

    inputs: Floats
    outputs: Floats
    mean: float
    scale: float
    lengths: Floats

    @classmethod
    def fit(cls, inputs: Floats, outputs: Floats) -> "GaussianProcess":
        """Return the process of at least one observation."""
        mean, scale = float(outputs.mean()), float(outputs.std()) or 1.0
        standard = (outputs - mean) / scale

        def loss(logs: Floats) -> float:
            root = cholesky(_gram(inputs, inputs, np.exp(logs), noisy=True), lower=True)
            fitted = cho_solve((root, True), standard)
            prior = (((logs - np.log(0.5)) / PRIOR_LOG_SD) ** 2).sum() / 2
            return float(standard @ fitted / 2 + np.log(np.diag(root)).sum() + prior)

        start = np.full(inputs.shape[1], np.log(0.5))
        found = minimize(loss, start, method="L-BFGS-B", bounds=[(-3.0, 2.0)] * start.size)
        return cls(inputs=inputs, outputs=standard, mean=mean, scale=scale, lengths=np.exp(found.x))

    def predict(self, inputs: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation at inputs (m, d), in the outputs' unit."""
        root = cholesky(_gram(self.inputs, self.inputs, self.lengths, noisy=True), lower=True)
        across = _gram(inputs, self.inputs, self.lengths, noisy=False)
        mean = across @ cho_solve((root, True), self.outputs)
        solved = cho_solve((root, True), across.T)
        variance = np.maximum(1.0 - (across * solved.T).sum(axis=1), 1e-12)
        return self.mean + self.scale * mean, self.scale * np.sqrt(variance)


def expected_improvement(mean: Floats, sd: Floats, best: float) -> Floats:
    """Return E[max(0, f - best)] for f normal (Jones et al. 1998)."""
    z = (mean - best) / sd
    gain: Floats = sd * (z * norm.cdf(z) + norm.pdf(z))
    return gain


def _gram(left: Floats, right: Floats, lengths: Floats, *, noisy: bool) -> Floats:
    apart = (left[:, None, :] - right[None, :, :]) / lengths
    r = np.sqrt(5.0 * (apart**2).sum(axis=2))
    gram: Floats = (1 + r + r**2 / 3) * np.exp(-r)
    return gram + NUGGET * np.eye(left.shape[0]) if noisy else gram
