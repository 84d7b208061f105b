"""Class-aware trustworthiness and continuity."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import MaybeLocal, score


def measure(orig: Any, emb: Any, label: Any, k: int = 20, knn_ranking_info: None = None,
            return_local: bool = False, rank_comparisons: None = None) -> MaybeLocal:
    """False neighbours of other classes, missing ones of the own (Colange et al., 2020): 1 is best.
    """
    return score("class_aware_trustworthiness_continuity", orig, emb, label=label,
                 params={"k": k},
                 return_local=return_local,
                 unused={"knn_ranking_info": knn_ranking_info,
                         "rank_comparisons": rank_comparisons})
