"""Pearson correlation of all distances."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, distance_matrices: None = None,
            pair_statistics: None = None) -> Scores:
    """1 is best (Geng et al., 2005)."""
    return score("pearson_r", orig, emb,
                 unused={"distance_matrices": distance_matrices,
                         "pair_statistics": pair_statistics})
