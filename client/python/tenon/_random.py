"""Seeds out of what NumPy programs use as sources of random numbers."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from tenon.errors import InvalidRequest


def seed_of(state: Any) -> int:
    """The seed that stands for an integer, a generator of NumPy, or None: NumPy's global one.

    A generator is drawn from, so that the next call gets another seed. One of the old kind that has
    given nothing since it was seeded yields that seed itself: `numpy.random.seed(7)` before a
    measure means the same here as where the measure draws from the global generator.
    """
    if isinstance(state, numbers.Integral) and not isinstance(state, (bool, np.bool_)):
        if state < 0:
            raise InvalidRequest(f"a seed is not negative: {state}", reason="BAD_PARAMETER",
                                 field="seed")
        return int(state)
    if isinstance(state, np.random.Generator):
        return int(state.integers(1 << 32))
    if state is None:
        state = np.random.mtrand._rand
    if isinstance(state, np.random.RandomState):
        seed = _untouched_seed(state)
        drawn = int(state.randint(1 << 32, dtype=np.uint64))
        return drawn if seed is None else seed
    raise TypeError(f"{type(state).__name__} is neither a seed nor a generator of NumPy")


def _untouched_seed(state: np.random.RandomState) -> int | None:
    now = state.get_state(legacy=False)
    kind, key, position = now["bit_generator"], now["state"]["key"], now["state"]["pos"]
    if kind != "MT19937" or position != len(key):
        return None
    # Seeding by a number puts it in the first word and derives all others from it.
    seed = int(key[0])
    fresh = np.random.RandomState(seed).get_state(legacy=False)["state"]["key"]
    return seed if np.array_equal(fresh, key) else None
