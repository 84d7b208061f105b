"""Spearman rank correlation of all distances."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, distance_matrices: None = None,
            ordered_pair_statistics: None = None) -> Scores:
    """1 is best (Sidney, 1957)."""
    return score("spearman_rho", orig, emb,
                 unused={"distance_matrices": distance_matrices,
                         "ordered_pair_statistics": ordered_pair_statistics})
