"""How often to repeat, in what turn, and what to make of slices that were not all run."""

import dataclasses
import math

LONG_SLICE_SECONDS = 20.0
DISTURBANCE = 0.1  # processors that worked for others, above which a time is doubtful


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What to time: `slices` slices (all of them: a whole contraction), `repeats` times."""
    slices: int
    repeats: int


def wanted_repeats(seconds):
    """Repetitions of something that takes `seconds`, when time is no object."""
    return 25 if seconds < 0.05 else 7 if seconds < 0.7 else 3


def plan(slice_seconds, nslices, seconds_left, repeats=None):
    """Chooses what fits in `seconds_left`, given the time of one warm slice.

    Everything when that fits once; else the first slices, at least two, so that what a slice pays
    for being another one is in the time. A slice that is long, or that leaves no time for two, is
    timed alone. `repeats` replaces the usual number of repetitions.
    """
    whole = slice_seconds * nslices
    if whole <= seconds_left:
        wanted = repeats or wanted_repeats(whole)
        fits = math.floor(seconds_left / whole) if whole > 0 else wanted
        return Schedule(nslices, max(1, min(wanted, fits)))
    if slice_seconds > LONG_SLICE_SECONDS or 2 * slice_seconds > seconds_left:
        return Schedule(1, 1)
    wanted = repeats or wanted_repeats(2 * slice_seconds)
    slices = min(nslices, max(2, math.floor(seconds_left / (wanted * slice_seconds))))
    fits = math.floor(seconds_left / (slices * slice_seconds))
    return Schedule(slices, max(1, min(wanted, fits)))


def best_round(rounds):
    """The figures of the quickest round; `rounds` in it has the seconds of all.

    Other work on the machine only ever adds time. Of rounds that were all stopped the one that ran
    longest tells most.
    """
    complete = [figures for figures in rounds if not figures["over"]]
    best = (min(complete, key=lambda figures: figures["seconds"]) if complete
            else max(rounds, key=lambda figures: figures["seconds"]))
    return {**best, "rounds": [figures["seconds"] for figures in rounds]}


def disturbed(figures):
    """Whether other work took enough of the processors to make the figures doubtful."""
    return figures.get("load", {}).get("foreign_processors", 0) > DISTURBANCE


def hopeless(figures):
    """Whether another round would only cost time: not one warm slice ended."""
    return figures["over"] or figures.get("cold_only", False)


def interleave(sides, count, retries):
    """Calls every side in turn, `count` times over. Returns the rounds of each by name.

    A side that other work disturbed is called again at once, `retries` times in all.
    """
    rounds = {name: [] for name in sides}
    left = dict.fromkeys(sides, retries)
    for _ in range(count):
        for name, call in sides.items():
            if rounds[name] and hopeless(rounds[name][-1]):
                continue
            rounds[name].append(call())
            while (disturbed(rounds[name][-1]) and left[name] > 0
                   and not hopeless(rounds[name][-1])):
                left[name] -= 1
                rounds[name].append(call())
    return rounds


def scaled(seconds, slices, nslices):
    """Seconds of the whole contraction, from those of `slices` of its slices."""
    return seconds * nslices / slices
