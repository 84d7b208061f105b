"""Label trustworthiness and continuity."""

from __future__ import annotations

from typing import Any

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, label: Any, cvm: str = "dsc") -> Scores:
    """Separation of pairs of classes that is lost or won (Jeon et al., 2024): 1 is best.

    `cvm` is "dsc", or "ch_btw", which draws its seed from NumPy's global generator.
    """
    return score("label_trustworthiness_and_continuity", orig, emb, label=label,
                 params={"cvm": cvm})
