"""Procrustes measure."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, k: int = 20, knn_info: None = None,
            working_memory_bytes: int | None = None) -> Scores:
    """Residual of neighbourhoods after the best rotation (Goldberg and Ritov, 2009): 0 is best."""
    return score("procrustes", orig, emb, params={"k": k}, unused={"knn_info": knn_info})
