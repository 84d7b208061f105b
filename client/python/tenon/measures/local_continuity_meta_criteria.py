"""Local continuity meta-criterion."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import MaybeLocal, score


def measure(orig: Any, emb: Any, k: int = 20, knn_info: None = None, return_local: bool = False,
            neighbor_statistics: None = None) -> MaybeLocal:
    """Share of common neighbours above chance (Chen and Buja, 2009); best is 1 - k / (n - 1)."""
    return score("local_continuity_meta_criteria", orig, emb,
                 params={"k": k},
                 return_local=return_local,
                 unused={"knn_info": knn_info, "neighbor_statistics": neighbor_statistics})
