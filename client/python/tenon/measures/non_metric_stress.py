"""Non-metric stress."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, distance_matrices: None = None,
            ordered_pair_statistics: None = None) -> Scores:
    """Stress after the best monotone transformation of the distances (Kruskal, 1964): 0 is best."""
    return score("non_metric_stress", orig, emb,
                 unused={"distance_matrices": distance_matrices,
                         "ordered_pair_statistics": ordered_pair_statistics})
