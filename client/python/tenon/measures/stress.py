"""Stress."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, distance_matrices: None = None,
            pair_statistics: None = None) -> Scores:
    """Relative error of all distances (Kruskal, 1964): 0 is best. The scale of `emb` counts."""
    return score("stress", orig, emb,
                 unused={"distance_matrices": distance_matrices,
                         "pair_statistics": pair_statistics})
