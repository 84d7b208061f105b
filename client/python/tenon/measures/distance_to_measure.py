"""Distance to measure."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, sigma: float = 0.1, distance_matrices: None = None,
            densities: None = None) -> Scores:
    """Absolute difference of the density estimates of both spaces (Chazal et al., 2011): 0 is best.

    `sigma` is the kernel's width, as a share of the largest distance.
    """
    return score("distance_to_measure", orig, emb, params={"sigma": sigma},
                 unused={"distance_matrices": distance_matrices, "densities": densities})
