"""Pictures of projections, contractions and reports, by matplotlib.

    from tenon import pictures
    run, = tenon.measure(points, ("tnc", {"k": 10}), projection, return_local=True)
    ax = pictures.checkviz(projection, run)
    ax.figure.savefig("checkviz.png")

Every function takes plain arrays or what the package returns, draws into ``ax`` (an ``Axes``;
default: one in a new figure), and returns the ``Axes``. The colours can be told apart by people who
are colour-blind.

Raises, all of them:
  ImportError: matplotlib is missing, or SciPy where points have neighbours.
  InvalidRequest: a ValueError; shapes, values or names that can't be drawn.
"""

from tenon.pictures._maps import checkviz, reliability_map
from tenon.pictures._table import score_table
from tenon.pictures._timeline import timeline
from tenon.pictures._tree import contraction_tree

__all__ = ["checkviz", "contraction_tree", "reliability_map", "score_table", "timeline"]
