"""Kullback-Leibler divergence of densities."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, sigma: float = 0.1, distance_matrices: None = None,
            densities: None = None) -> Scores:
    """Of the density estimates of both spaces (Hinton and Roweis, 2002): 0 is best.

    `sigma` is the kernel's width, as a share of the largest distance.
    """
    return score("kl_divergence", orig, emb, params={"sigma": sigma},
                 unused={"distance_matrices": distance_matrices, "densities": densities})
