"""Agreement of a clustering of the projection with the labels."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(emb: Any, label: Any, measure: str = "arand", clustering: str = "kmeans",
            clustering_args: dict[str, Any] | None = None) -> Scores:
    """`measure` is "arand", "ami", "nmi" or "vmeasure", `clustering` "kmeans" or "dbscan", and
    `clustering_args` are scikit-learn's. k-means has random choices of its own.
    """
    return score("clustering_and_external_validation_measure", None, emb, label=label,
                 params={"measure": measure, "clustering": clustering,
                         "clustering_args": clustering_args})
