"""Trustworthiness and continuity."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import MaybeLocal, score


def measure(orig: Any, emb: Any, k: int = 20, knn_ranking_info: None = None,
            return_local: bool = False, rank_comparisons: None = None) -> MaybeLocal:
    """Ranks of false and of missing neighbours (Venna and Kaski, 2006): 1 is best; 2k < n."""
    return score("trustworthiness_continuity", orig, emb,
                 params={"k": k},
                 return_local=return_local,
                 unused={"knn_ranking_info": knn_ranking_info,
                         "rank_comparisons": rank_comparisons})
