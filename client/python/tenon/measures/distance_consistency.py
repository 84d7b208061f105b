"""Distance consistency."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(emb: Any, label: Any) -> Scores:
    """Share of rows nearest to the centroid of their class (Sips et al., 2009): 1 is best."""
    return score("distance_consistency", None, emb, label=label)
