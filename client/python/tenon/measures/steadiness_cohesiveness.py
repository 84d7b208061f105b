"""Steadiness and cohesiveness."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.measures._direct import MaybeLocal, score


def measure(orig: Any, emb: Any, iteration: int = 150, walk_num_ratio: float = 0.3,
            alpha: float = 0.1, k: int | None = None, clustering_strategy: str = "dbscan",
            knn_info: None = None, return_local: bool = False,
            random_state: int | np.random.Generator | None = None, n_jobs: int = 1,
            working_memory_bytes: int | None = None) -> MaybeLocal:
    """Relations between clusters that are invented or lost (Jeon et al., 2022): 1 is best.

    Randomised: `random_state` is a seed, a generator of NumPy (it gives the seed), or None for
    NumPy's global one.
    """
    return score("steadiness_cohesiveness", orig, emb,
                 params={"iteration": iteration, "walk_num_ratio": walk_num_ratio, "alpha": alpha,
                         "k": k, "clustering_strategy": clustering_strategy,
                         "random_state": random_state, "n_jobs": n_jobs},
                 return_local=return_local,
                 unused={"knn_info": knn_info})
