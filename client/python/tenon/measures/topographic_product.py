"""Topographic product."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, k: int = 20, distance_matrices: None = None, knn_info: None = None,
            topographic_product_statistics: None = None) -> Scores:
    """Preservation of the order of neighbours (Bauer and Pawelzik, 1992): 0 is best."""
    return score("topographic_product", orig, emb,
                 params={"k": k},
                 unused={"distance_matrices": distance_matrices, "knn_info": knn_info,
                         "topographic_product_statistics": topographic_product_statistics})
