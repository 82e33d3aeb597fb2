"""EM for Gaussian mixtures in plain NumPy and double precision: what `cenie.novelty.em` must equal."""

import numpy as np
from scipy.special import logsumexp


def plain_em(
    points: np.ndarray, centres: np.ndarray, covariance: str, reg: float, tolerance: float, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, int]:
    """Weights [k], means [k, d], covariances, mean log-likelihood and steps of a fit to points [n, d].

    Every point belongs to its nearest centre at first, and the means are the centres themselves.
    """
    n, k = len(points), len(centres)
    nearest = ((points[:, None] - centres) ** 2).sum(axis=-1).argmin(axis=1)
    responsibilities = np.eye(k)[nearest]
    weights, means = responsibilities.mean(axis=0), centres.copy()
    spreads = np.stack([_spread(points, responsibilities[:, i], means[i], covariance, reg) for i in range(k)])
    last, steps, done = np.inf, 0, False
    while not done and steps < most:
        joint = np.log(weights) + _log_gaussians(points, means, spreads)
        responsibilities = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        loss = -logsumexp(joint, axis=1).mean()
        done, last, steps = abs(last - loss) < tolerance, loss, steps + 1
        for i, count in enumerate(responsibilities.sum(axis=0)):
            if count < 0.99:  # Less than one point: the component stays where it is, with almost no weight.
                weights[i] = 1e-8
                continue
            weights[i] = count / n
            means[i] = responsibilities[:, i] @ points / count
            spreads[i] = _spread(points, responsibilities[:, i], means[i], covariance, reg)
    joint = np.log(weights) + _log_gaussians(points, means, spreads)
    return weights, means, spreads, float(logsumexp(joint, axis=1).mean()), steps


def _spread(
    points: np.ndarray, shares: np.ndarray, mean: np.ndarray, covariance: str, reg: float
) -> np.ndarray:
    """The variances [d], or the covariance [d, d], around a mean."""
    rows = points - mean
    matrix = (shares[:, None] * rows).T @ rows / shares.sum() + reg * np.eye(len(mean))
    return np.diag(matrix) if covariance == "diag" else matrix


def _log_gaussians(points: np.ndarray, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """log N(x; mu_k, Sigma_k) [n, k]."""
    matrices = [np.diag(spread) if spread.ndim == 1 else spread for spread in spreads]
    parts = []
    for mean, matrix in zip(means, matrices):
        rows = points - mean
        distances = (rows @ np.linalg.inv(matrix) * rows).sum(axis=1)
        parts.append(-0.5 * (distances + np.linalg.slogdet(matrix)[1] + len(mean) * np.log(2 * np.pi)))
    return np.stack(parts, axis=1)
