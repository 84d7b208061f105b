"""Class angular distortion index."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.measures._direct import Scores, score


def measure(orig: Any, emb: Any, label: Any, n_triplets: int = 0,
            random_seed: int | np.random.Generator | None = None) -> Scores:
    """Change of angles between classes (Gunaratne, Kobourov and Miller, 2026): 0 is best.

    Over `n_triplets` random triplets; 0 means 10 n.
    """
    return score("class_angular_distortion_index", orig, emb, label=label,
                 params={"n_triplets": n_triplets, "random_seed": random_seed})
