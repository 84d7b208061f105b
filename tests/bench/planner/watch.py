"""How much other work ran meanwhile."""

import resource
import time

from load import _busy_seconds, own_seconds


def _children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Watch:
    """Counts the processors that worked for others than our children, dead ones (waited for) and
    the processes `pids`, which live."""

    def __init__(self, pids=()):
        self._pids = list(pids)
        self._start = self._now()

    def _now(self):
        ours = _children() + sum(map(own_seconds, self._pids))
        return time.monotonic(), _busy_seconds() - ours

    def processors(self):
        now, foreign = self._now()
        return max(0.0, (foreign - self._start[1]) / max(now - self._start[0], 0.01))
