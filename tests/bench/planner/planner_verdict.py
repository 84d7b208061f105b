"""What the figures of a run say: ratios, requirements, tables. Pure functions."""

import math

PEERS = ("cotengra", "omeco")
MEAN_TARGET = 0.9
TOLERANCE = 1e-9
CATCH_UP = 60, 3  # what cotengra reaches in the first, Tenon reaches in the second

# log10 of the flops of an unsliced plan, and the seconds to find it in.
ANCHORS = {"sycamore53_m10_amp": (9.81, 60), "sycamore53_m12_amp": (13.0, 300),
           "sycamore53_m20_amp": (18.30, 300)}
# Milliseconds at most.
MICRO = {"greedy": ("greedy, 1000 tensors", 20), "optimal": ("exact, 14 tensors", 50),
         "cached": ("plan out of the cache", None)}


RUN, WHOLE = "log10_run", "log10_score"  # with reuse between slices, and without


def log_score(cell, party, kind=RUN):
    """log10 of what a party's plan costs; None if it has none."""
    figures = cell["parties"].get(party)
    return figures["best"][kind] if figures and figures["best"] else None


def best_peer(cell, kind=RUN):
    """(name, log10 score) of the better peer, or None."""
    scores = [(log_score(cell, peer, kind), peer) for peer in PEERS
              if log_score(cell, peer, kind) is not None]
    return (min(scores)[1], min(scores)[0]) if scores else None


def ratio(cell, kind=RUN):
    """Tenon's cost over that of the best peer; None if either has no plan."""
    ours, peer = log_score(cell, "tenon", kind), best_peer(cell, kind)
    return None if ours is None or peer is None else 10.0**(ours - peer[1])


def geometric_mean(ratios):
    values = list(ratios)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def requirement(line, value, target, text=None):
    """One number that may be at most `target`. A missing one is not met."""
    met = value is not None and value <= target * (1 + TOLERANCE) + TOLERANCE
    return {"line": line, "value": value, "target": target, "met": met, "text": text}


def compared(cells):
    """The cells that peers took part in."""
    return [cell for cell in cells if any(peer in cell["parties"] for peer in PEERS)]


def cell_name(cell):
    return f"{cell['network']}, {cell['objective']}, {cell['seconds']:g} s"


def cell_requirements(cells):
    found = []
    for cell in compared(cells):
        if "tenon" not in cell["parties"]:
            continue
        value, peer = ratio(cell), best_peer(cell)
        if value is None and log_score(cell, "tenon") is not None:
            continue  # no peer found a plan that fits
        found.append(requirement(f"{cell_name(cell)}: ÷ {peer[0] if peer else 'peers'}", value, 1))
    groups = sorted({(cell["objective"], cell["seconds"]) for cell in compared(cells)})
    for objective, seconds in groups:
        ratios = [ratio(cell) for cell in compared(cells)
                  if (cell["objective"], cell["seconds"]) == (objective, seconds)]
        ratios = [value for value in ratios if value is not None]
        if ratios:
            found.append(requirement(f"geometric mean, {objective}, {seconds:g} s "
                                     f"({len(ratios)} networks)", geometric_mean(ratios),
                                     MEAN_TARGET))
    ratios = [value for value in map(ratio, compared(cells)) if value is not None]
    if ratios:
        found.append(requirement(f"geometric mean of all {len(ratios)}", geometric_mean(ratios),
                                 MEAN_TARGET))
    return found


def catch_up_requirements(cells):
    """What cotengra reaches in 60 s, Tenon reaches in 3 s."""
    slow, quick = CATCH_UP
    found = []
    for cell in cells:
        theirs = log_score(cell, "cotengra")
        if cell["seconds"] != slow or theirs is None:
            continue
        line = (f"{cell['network']}, {cell['objective']}: Tenon in {quick} s ÷ cotengra in "
                f"{slow} s")
        ours = next((other for other in cells if other["seconds"] == quick
                     and _same(other, cell) and log_score(other, "tenon") is not None), None)
        if ours is None:
            if "tenon" in cell["parties"]:
                found.append(requirement(line, None, 1))
            continue
        found.append(requirement(line, 10.0**(log_score(ours, "tenon") - theirs), 1))
        found.append(requirement(line + ": seconds", ours["parties"]["tenon"]["seconds"], quick))
    return found


def _same(one, other):
    return all(one[key] == other[key] for key in ("network", "digest", "objective", "target"))


def anchor_requirements(anchors):
    found = []
    for anchor in anchors:
        best = anchor["tenon"]["best"]
        found.append(requirement(f"{anchor['network']}: log10 flops, unsliced",
                                 best and best["log10_flops"], anchor["log10_flops"]))
        found.append(requirement(f"{anchor['network']}: seconds", anchor["tenon"]["seconds"],
                                 1.02 * anchor["seconds"]))
    return found


def micro_requirements(micro):
    found = []
    for name, figures in micro.items():
        line, target = MICRO[name]
        if target is not None:
            found.append(requirement(f"{line}: median ms", figures["milliseconds"], target))
    return found


def requirements(results):
    return (cell_requirements(results["cells"]) + catch_up_requirements(results["cells"])
            + anchor_requirements(results["anchors"]) + micro_requirements(results["micro"]))


def faults(results):
    """What makes the run worthless rather than Tenon slow: lines."""
    found = []
    for cell in results["cells"]:
        for party, figures in cell["parties"].items():
            if figures.get("differs"):
                found.append(f"{cell_name(cell)}: {party} {figures['differs']}")
    return found + [text for text in notes(results) if ": tenon " in text]


def notes(results):
    """Parties that found nothing that fits the target, and costs without reuse: lines."""
    found = [f"{cell_name(cell)}: {party} has no plan that fits the target"
             for cell in results["cells"] for party, figures in cell["parties"].items()
             if figures["best"] is None]
    ratios = [value for value in (ratio(cell, WHOLE) for cell in compared(results["cells"]))
              if value is not None]
    if ratios:
        worse = sum(value > 1 + 1e-6 for value in ratios)
        found.append("without reuse between slices: geometric mean "
                     f"{number(geometric_mean(ratios))}, above the best peer in {worse} of "
                     f"{len(ratios)} cells, at most {number(max(ratios))}")
    return found


def number(value, digits=3):
    return "–" if value is None else f"{value:.{digits}g}"


def _log(value):
    return "–" if value is None else f"{value:.2f}"


def _markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def table(cells):
    """Markdown: a row per network and objective; log10 of the cost of every party, and Tenon's cost
    over the best peer's, after each number of seconds."""
    cells = compared(cells)
    times = sorted({cell["seconds"] for cell in cells})
    parties = [party for party in ("tenon", *PEERS)
               if any(party in cell["parties"] for cell in cells)]
    head = ["network", "tensors", "cost"]
    for seconds in times:
        head += [f"{party} {seconds:g} s" for party in parties] + ["÷ best"]
    rows = []
    for key in sorted({(cell["network"], cell["objective"], cell["target"] or 0)
                       for cell in cells}):
        row = [cell for cell in cells
               if (cell["network"], cell["objective"], cell["target"] or 0) == key]
        line = [key[0], str(row[0]["tensors"]), key[1] + (", unsliced" if not key[2] else "")]
        for seconds in times:
            cell = next((cell for cell in row if cell["seconds"] == seconds), None)
            line += [_log(cell and log_score(cell, party)) for party in parties]
            line.append(number(cell and ratio(cell)))
        rows.append(line)
    return _markdown(head, rows + [_means(cells, times, parties)])


def short_table(cells):
    """Markdown: a row per network; log10 of the cost of Tenon / of the better peer, by objective
    and number of seconds, and the geometric means of their ratios."""
    cells = compared(cells)
    columns = sorted({(cell["objective"], cell["seconds"]) for cell in cells})
    head = ["network"] + [f"{objective} {seconds:g} s" for objective, seconds in columns]
    found = {(cell["network"], cell["objective"], cell["seconds"]): cell for cell in cells}
    rows = []
    for network in sorted({cell["network"] for cell in cells}):
        line = [network]
        for column in columns:
            cell = found.get((network, *column))
            peer = cell and best_peer(cell)
            ours = cell and log_score(cell, "tenon")
            line.append(f"{_log(ours)} / {_log(peer and peer[1])}" if cell else "–")
        rows.append(line)
    means = ["**geometric mean of ratios**"]
    for column in columns:
        ratios = [ratio(cell) for cell in cells if (cell["objective"], cell["seconds"]) == column]
        means.append(number(geometric_mean(value for value in ratios if value is not None)))
    return _markdown(head, rows + [means])


def _means(cells, times, parties):
    line = ["**geometric mean**", "", ""]
    for seconds in times:
        ratios = [ratio(cell) for cell in cells if cell["seconds"] == seconds]
        mean = geometric_mean(value for value in ratios if value is not None)
        line += [""] * len(parties) + [number(mean)]
    return line


def checklist(results):
    """A line per requirement, those that are not met first."""
    found = sorted(requirements(results), key=lambda r: r["met"])
    lines = [f"{'ok  ' if r['met'] else 'MISS'} {r['line']}: {number(r['value'], 7)} "
             f"(at most {number(r['target'], 4)})" for r in found]
    missed = sum(not r["met"] for r in found)
    for name, figures in results["micro"].items():
        if MICRO[name][1] is None:
            lines.append(f"     {MICRO[name][0]}: {number(figures['milliseconds'])} ms")
    return "\n".join(lines + [f"{len(found) - missed} of {len(found)} requirements met"])
