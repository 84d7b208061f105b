"""What the figures of a run say: ratios, targets, comparisons of scores, tables. Pure functions."""

import math
import statistics

import cases
import timing
from report import number

_TOLERANCE = 1e-9
_SPREADS = 5  # standard deviations of a difference of two random scores


def fastest(peers):
    """(name, seconds) of the quickest setting of each library that took part."""
    best = {}
    for name, figures in peers.items():
        library = name.split(",")[0]
        if library not in best or figures["seconds"] < best[library][1]:
            best[library] = (name, figures["seconds"])
    return list(best.values())


def above_inputs(figures):
    memory = figures["memory"]
    return memory["peak_bytes"] - memory["inputs_bytes"]


def requirement(line, value, sense, target):
    """One number to reach. `sense` is ">=" or "<="."""
    met = value >= target if sense == ">=" else value <= target
    return {"line": line, "value": value, "sense": sense, "target": target, "met": met}


def _ratios(label, seconds, peers, target):
    return [requirement(f"{label}: {name} ÷ Tenon", peer / seconds, ">=", target)
            for name, peer in fastest(peers)]


def case_requirements(entry):
    found = []
    for way in entry["tenon"]:
        label = f"{entry['name']}, {way['name']}"
        found += _ratios(label, way["seconds"], entry["peers"], way["ratio"])
        if way["memory_limit"]:
            found.append(requirement(f"{label}: MiB above inputs", above_inputs(way) / cases.MIB,
                                     "<=", way["memory_limit"] / cases.MIB))
        if entry.get("floor"):
            found.append(requirement(f"{label}: ÷ both distance matrices",
                                     way["seconds"] / entry["floor"]["seconds"], "<=",
                                     entry["floor_target"]))
    return found


def further_requirements(entry):
    return [requirement(f"further ÷ first, {way['name']}", way["further"] / way["seconds"], "<=",
                        way["target"]) for way in entry["tenon"]]


def stream_requirements(entry):
    return _ratios(f"stream of {entry['count']}", entry["tenon"][0]["seconds"], entry["peers"],
                   entry["target"])


def large_requirements(entry):
    one, two = entry["tenon"]
    label, limit = f"tnc of {entry['rows']} rows", entry["budget"] / cases.MIB
    found = []
    for way in (one, two):
        name = f"{label}, {way['name']}"
        planned = way["planned_bytes"] / cases.MIB
        found += [requirement(f"{name}: planned MiB", planned, "<=", limit),
                  requirement(f"{name}: MiB above inputs, of those planned",
                              above_inputs(way) / cases.MIB, "<=", planned),
                  requirement(f"{name}: difference at checked rows", way["difference"], "<=",
                              _TOLERANCE)]
    return [*found, requirement(f"{label}: 1 thread ÷ 2", one["seconds"] / two["seconds"], ">=",
                                entry["target"])]


def small_requirements(entry):
    return [requirement(f"{entry['rows']} rows, five measures: ms in the server",
                        1e3 * entry["tenon"][0]["seconds"], "<=", entry["target"])]


_REQUIREMENTS = {"case": case_requirements, "further": further_requirements,
                 "stream": stream_requirements, "large": large_requirements,
                 "small": small_requirements}


def requirements(entries):
    return [found for entry in entries for found in _REQUIREMENTS[entry["kind"]](entry)]


def _allowed(key, expected, way):
    """How far a score may be from a peer's."""
    if "all_scores" not in way:
        return _TOLERANCE * max(abs(expected), 1e-300)
    values = [scores[0][key] for scores in way["all_scores"]]
    return _SPREADS * math.sqrt(2) * max(statistics.stdev(values), 1e-12)


def _flat(scores):
    return {key: value for spec in scores for key, value in spec.items()}


def compare(entry):
    """[(what, difference, allowed)] of every score that a peer gave too."""
    found = []
    for way in entry["tenon"]:
        for name, peer in entry["peers"].items():
            ours, theirs = way["scores"], peer["scores"]
            if entry["kind"] == "case":
                ours, theirs = [ours], [theirs]
            for number_, (left, right) in enumerate(zip(ours, theirs)):
                left, right = _flat(left), _flat(right)
                for key, expected in right.items():
                    what = f"{entry['name']} {key} [{number_}] against {name}"
                    found.append((what, abs(left[key] - expected), _allowed(key, expected, way)))
    return found


def mismatches(entries):
    return [f"{what}: differs by {difference:.3g}, allowed is {allowed:.3g}"
            for entry in entries if entry["kind"] in ("case", "stream")
            for what, difference, allowed in compare(entry) if not difference <= allowed]


def _row(cells):
    return "| " + " | ".join(cells) + " |"


def _largest_part(entry):
    """The largest difference as a share of what is allowed."""
    shares = [difference / allowed for _, difference, allowed in compare(entry)]
    return f"{max(shares):.1g}" if shares else "–"


def table(entries):
    """The cases, as Markdown."""
    names = list(dict.fromkeys(name for entry in entries if entry["kind"] == "case"
                               for name in entry["peers"]))
    head = ["case", "n", "budget", "seconds", "in server", "CPU s", "further", "MiB",
            *(f"{name}: s (further)" for name in names), "MiB of peers", "ratio", "target", "met",
            "difference ÷ allowed"]
    lines = [_row(head), _row(["---"] * 3 + ["--:"] * (len(head) - 3))]
    for entry in entries:
        if entry["kind"] != "case":
            continue
        peers = [entry["peers"].get(name) for name in names]
        theirs = [f"{number(p['seconds'])} ({number(p['further'])})" if p else "–" for p in peers]
        peak = max((above_inputs(p) for p in peers if p), default=None)
        for way in entry["tenon"]:
            ratios = _ratios("", way["seconds"], entry["peers"], way["ratio"])
            lines.append(_row([
                entry["name"], str(entry["rows"]), way["name"], number(way["seconds"]),
                number(way["parts"]["request_seconds"]), number(way.get("cpu_seconds")),
                number(way["further"]),
                number(above_inputs(way) / cases.MIB), *theirs,
                number(peak / cases.MIB if peak is not None else None),
                ", ".join(number(r["value"]) for r in ratios) or "–", number(way["ratio"]),
                met(ratios, entry["judged"]), _largest_part(entry)]))
    return "\n".join(lines)


def met(found, judged):
    if not found or not judged:
        return "–"
    return "yes" if all(one["met"] for one in found) else "NO"


def disturbed(entry):
    """Processors that other work took while a side was measured, by side, where it matters."""
    sides = {f"Tenon, {way.get('name', 'alone')}": way for way in entry["tenon"]}
    sides.update(entry.get("peers", {}))
    return {name: figures["load"]["foreign_processors"] for name, figures in sides.items()
            if timing.disturbed(figures)}


def checklist(entries):
    """Every number to reach, a line each, and the sides whose times are doubtful."""
    lines = []
    for entry in entries:
        for one in _REQUIREMENTS[entry["kind"]](entry):
            lines.append(f"{met([one], entry['judged']):>3}  {one['line']}: {number(one['value'])} "
                         f"({one['sense']} {number(one['target'])})")
        lines += [f"     [{name}: other work took {processors:.2f} processors]"
                  for name, processors in disturbed(entry).items()]
    return "\n".join(lines)
