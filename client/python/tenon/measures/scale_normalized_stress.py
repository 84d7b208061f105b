"""Scale-normalised stress."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, distance_matrices: None = None,
            pair_statistics: None = None) -> Scores:
    """Stress after the best scaling of the projection (Smelser et al., 2024): 0 is best."""
    return score("scale_normalized_stress", orig, emb,
                 unused={"distance_matrices": distance_matrices,
                         "pair_statistics": pair_statistics})
