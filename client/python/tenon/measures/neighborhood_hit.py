"""Neighbourhood hit."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import MaybeLocal, score


def measure(emb: Any, label: Any, k: int = 20, knn_info: None = None, knn_emb_info: None = None,
            return_local: bool = False) -> MaybeLocal:
    """Share of projected neighbours with the same label (Paulovich et al., 2008): 1 is best."""
    return score("neighborhood_hit", None, emb, label=label,
                 params={"k": k},
                 return_local=return_local,
                 unused={"knn_info": knn_info, "knn_emb_info": knn_emb_info})
