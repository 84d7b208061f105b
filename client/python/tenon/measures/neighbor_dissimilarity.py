"""Neighbour dissimilarity."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, k: int = 20, snn_info: None = None, knn_info: None = None,
            neighbor_statistics: None = None) -> Scores:
    """Difference of the shared-neighbour graphs (Fu et al., 2019): 0 is best, and it grows with n.
    """
    return score("neighbor_dissimilarity", orig, emb,
                 params={"k": k},
                 unused={"snn_info": snn_info, "knn_info": knn_info,
                         "neighbor_statistics": neighbor_statistics})
