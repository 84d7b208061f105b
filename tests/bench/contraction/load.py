"""What else ran while something was measured."""

import os
import pathlib
import time

_TICKS = os.sysconf("SC_CLK_TCK")


def _busy_seconds():
    """CPU seconds that all processors together have worked or were taken away, since the start."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def own_seconds(pid):
    """CPU seconds of one process, all threads."""
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class ForeignLoad:
    """Watches from its making on; `processors()` is how many processors, on average, worked for
    others than the processes `pids`. Above a few hundredths, the times are not the machine's."""

    def __init__(self, pids):
        self._pids = list(pids)
        self._start = self._now()

    def _now(self):
        return time.monotonic(), _busy_seconds() - sum(map(own_seconds, self._pids))

    def processors(self):
        now, foreign = self._now()
        return max(0.0, (foreign - self._start[1]) / max(now - self._start[0], 1 / _TICKS))
