"""Internal validation of the labels in the projection."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(emb: Any, label: Any, measure: str = "silhouette") -> Scores:
    """The index named by `measure`: "silhouette", "calinski_harabasz" or "davies_bouldin", by
    scikit-learn's definitions.
    """
    return score("internal_validation_measure", None, emb, label=label, params={"measure": measure})
