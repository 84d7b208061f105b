"""Colours: a scale of two values, and one colour per name."""

from __future__ import annotations

from typing import Any

import numpy as np

# M. Okabe, K. Ito: Color Universal Design, 2008.
OKABE_ITO = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
HATCHES = ("", "///", "...", "xxx")  # when the colours have run out

SEQUENTIAL = "cividis"  # looks alike with and without red-green blindness

# Steps in CIELAB of one unit of false and of missing: violet and green, which stay apart for all
# kinds of colour blindness. No colour of the scale leaves sRGB.
_FALSE = np.array([-45.0, 50.0, -40.0])
_MISSING = np.array([-45.0, -50.0, 40.0])
_WHITE = np.array([100.0, 0.0, 0.0])

_D65 = np.array([0.95047, 1.0, 1.08883])
_XYZ_TO_SRGB = np.array([[3.2404542, -1.5371385, -0.4985314],
                         [-0.9692660, 1.8760108, 0.0415560],
                         [0.0556434, -0.2040259, 1.0572252]])


def two_values(false: Any, missing: Any) -> np.ndarray:
    """Colours of two distortions, each clipped to 0 .. 1: sRGB, one more axis of three.

    White: none; violet: false neighbours; green: missing ones; black: both. Linear in CIELAB, so
    that equal differences look equal.
    """
    first = np.clip(np.asarray(false, np.float64), 0, 1)[..., np.newaxis]
    second = np.clip(np.asarray(missing, np.float64), 0, 1)[..., np.newaxis]
    return _srgb(_WHITE + first * _FALSE + second * _MISSING)


def _srgb(lab: np.ndarray) -> np.ndarray:
    """sRGB (IEC 61966-2-1) of CIELAB under D65 (CIE 15)."""
    level = (lab[..., 0] + 16) / 116
    root = np.stack([level + lab[..., 1] / 500, level, level - lab[..., 2] / 200], axis=-1)
    xyz = _D65 * np.where(root > 6 / 29, root**3, 3 * (6 / 29)**2 * (root - 4 / 29))
    linear = np.clip(xyz @ _XYZ_TO_SRGB.T, 0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear**(1 / 2.4) - 0.055)


def of_name(number: int) -> dict[str, str]:
    """Colour and hatch of the name with this number."""
    rounds, colour = divmod(number, len(OKABE_ITO))
    return {"facecolor": OKABE_ITO[colour], "hatch": HATCHES[rounds % len(HATCHES)]}
