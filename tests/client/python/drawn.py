"""Figures without a screen, and what is drawn in them."""

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402
from matplotlib.collections import LineCollection, PathCollection, PolyCollection  # noqa: E402


def new_axes():
    return pyplot.figure().add_subplot()


def collections(ax, kind):
    # PolyCollection and the others are no subclasses of each other.
    return [artist for artist in ax.collections if type(artist) is kind]


def polygons(ax):
    return collections(ax, PolyCollection)


def lines(ax):
    return collections(ax, LineCollection)


def marks(ax):
    return collections(ax, PathCollection)


def render(ax):
    """Draws everything for real: what can't be drawn raises."""
    ax.figure.canvas.draw()
