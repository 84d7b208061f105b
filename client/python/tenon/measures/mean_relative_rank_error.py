"""Mean relative rank errors."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import MaybeLocal, score


def measure(orig: Any, emb: Any, k: int = 20, knn_ranking_info: None = None,
            return_local: bool = False, rank_comparisons: None = None) -> MaybeLocal:
    """One minus the mean change of the neighbours' ranks (Lee and Verleysen, 2007): 1 is best."""
    return score("mean_relative_rank_error", orig, emb,
                 params={"k": k},
                 return_local=return_local,
                 unused={"knn_ranking_info": knn_ranking_info,
                         "rank_comparisons": rank_comparisons})
