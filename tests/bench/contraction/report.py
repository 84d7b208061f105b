"""What the raw figures of a run say: ratios, shares, means, tables. Pure functions."""

import math

import timing

MIB = 1024.0 * 1024
SMALL_MEMORY = MIB  # below this, peaks are pages of the runtime, not tensors
SHORT_SECONDS = 1e-3  # networks below are judged by seconds per step
STRONG_SHARE = 0.6  # a peer above this share of the GEMM peak leaves the verdict to the floor


def geometric_mean(values):
    """Of positive values; None of none."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def memory_above_inputs(figures, kind):
    """Peak above the inputs in bytes, or None. `kind`: "tenon" or "peer".

    Of processes both: what the resident set grew by during a contraction in a fresh process that
    held its inputs already. The plan's own figures stand beside it in the JSON.
    """
    memory = figures.get("memory")
    if not memory:
        return None
    before = memory["rss_before_bytes" if kind == "tenon" else "inputs_bytes"]
    return max(0, memory["rss_peak_bytes" if kind == "tenon" else "peak_bytes"] - before)


def memory_ratio(tenon, peer):
    """Tenon's peak over the peer's; None when one is unknown."""
    if tenon is None or peer is None:
        return None
    return max(tenon, SMALL_MEMORY) / max(peer, SMALL_MEMORY)


def gemm_peak(entry):
    """The best GEMM rate that the run measured for the entry's element type, or None."""
    return max((rate for rate in entry.get("gemm_gflops", {}).values() if rate), default=None)


def derive(entry):
    """Figures of one network: see the keys. A missing one is None; `least` names the ratios whose
    peer was stopped, so that the true ratio is higher."""
    tenon, peers = entry.get("tenon"), entry.get("peers", {})
    done = tenon is not None and not tenon["over"]
    seconds = tenon["seconds"] if done else None
    peak = gemm_peak(entry)
    derived = {"seconds": seconds, "ratios": {}, "least": [], "fastest": None,
               "fastest_ratio": None, "gflops": None, "share": None, "floor": None,
               "end_to_end": None, "wire": None, "memory": None, "memory_ratio": None,
               "seconds_per_step": None, "peer_shares": {}}
    for name, peer in peers.items():
        if peak and not peer["over"]:
            derived["peer_shares"][name] = entry["real_flops"] / peer["seconds"] / 1e9 / peak
        if peer["over"]:
            derived["least"].append(name)
        if done:
            derived["ratios"][name] = peer["seconds"] / seconds
    complete = {name: peer for name, peer in peers.items() if not peer["over"]}
    if complete:
        derived["fastest"] = min(complete, key=lambda name: complete[name]["seconds"])
        derived["fastest_ratio"] = derived["ratios"].get(derived["fastest"])
    if not done:
        return derived
    derived["gflops"] = tenon["real_flops"] / seconds / 1e9
    derived["share"] = derived["gflops"] / peak if peak else None
    derived["end_to_end"] = tenon["end_to_end_seconds"]
    derived["wire"] = max(0.0, 1 - seconds / tenon["end_to_end_seconds"])
    derived["seconds_per_step"] = seconds / max(1, entry["steps"])
    derived["memory"] = memory_above_inputs(tenon, "tenon")
    derived["memory_ratio"] = memory_ratio(
        derived["memory"], memory_above_inputs(peers.get("cotengra-numpy", {}), "peer"))
    if entry.get("floor"):
        derived["floor"] = seconds / entry["floor"]["floor_seconds"]
    return derived


def disturbed(entry):
    """Sides of a network that shared the processors with other work while they were timed."""
    sides = {"tenon": entry.get("tenon") or {}, **entry.get("peers", {})}
    return {name: side["load"]["foreign_processors"] for name, side in sides.items()
            if timing.disturbed(side)}


def mismatches(entry):
    """Descriptions of the results that differ from the reference by more than is allowed."""
    sides = {"tenon": entry.get("tenon") or {}, **entry.get("peers", {})}
    return [f"{entry['name']} {entry['dtype']}: {name} differs from the reference by "
            f"{side['check']['difference']:.2g}, allowed is {side['check']['tolerance']:.2g}"
            for name, side in sides.items()
            if "check" in side and not side["check"]["difference"] <= side["check"]["tolerance"]]


def summary(entries):
    """Geometric means and the worst networks."""
    derived = [(entry, derive(entry)) for entry in entries]
    peers = sorted({name for entry in entries for name in entry.get("peers", {})})

    def mean(values):
        return geometric_mean(value for value in values if value)

    slower = []
    for entry, d in derived:
        if d["fastest_ratio"] is not None and d["fastest_ratio"] < 0.95:
            strong = d["peer_shares"].get(d["fastest"], 0) > STRONG_SHARE
            slower.append((entry["name"], entry["dtype"], d["fastest_ratio"], strong))
    floors = [d["floor"] for _, d in derived if d["floor"] and d["seconds"] >= SHORT_SECONDS]
    return {
        "networks": len(entries),
        "ratios": {name: mean(d["ratios"].get(name) for _, d in derived) for name in peers},
        "least": sorted({name for _, d in derived for name in d["least"]}),
        "fastest_ratio": mean(d["fastest_ratio"] for _, d in derived),
        "memory_ratio": mean(d["memory_ratio"] for _, d in derived),
        "floor": mean(floors),
        "worst_floor": max(floors, default=None),
        "slower": slower,
    }


def number(value, digits=3):
    """A figure for people; a dash for None."""
    if value is None:
        return "–"
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{min(decimals, 4)}f}"


def _percent(value):
    return "–" if value is None else f"{100 * value:.0f} %"


def _ratio(derived, name):
    value = derived["ratios"].get(name)
    return ("> " if name in derived["least"] and value else "") + number(value, 2)


def _row(entry, peers):
    d = derive(entry)
    floor = (f"{number(d['seconds_per_step'] * 1e6, 2)} µs/step"
             if d["seconds"] and d["seconds"] < SHORT_SECONDS else number(d["floor"], 2))
    memory = "–" if d["memory"] is None else number(d["memory"] / MIB)
    return [entry["name"], entry["dtype"], number(d["seconds"]),
            *(_ratio(d, peer) for peer in peers), number(d["fastest_ratio"], 2),
            number(d["gflops"]), _percent(d["share"]), floor, memory,
            number(d["memory_ratio"], 2), number(d["end_to_end"]), _percent(d["wire"])]


def table(entries):
    """A Markdown table: Tenon's seconds, how many times faster it is than each peer, and the rest,
    with geometric means in the last row."""
    peers = sorted({name for entry in entries for name in entry.get("peers", {})})
    head = ["network", "dtype", "seconds", *(f"× {peer}" for peer in peers), "× fastest",
            "GFLOP/s", "of GEMM peak", "÷ floor", "peak MiB", "÷ cotengra", "end to end s", "wire"]
    means = summary(entries)
    last = ["**geometric mean**", "", "",
            *(("> " if peer in means["least"] else "") + number(means["ratios"][peer], 2)
              for peer in peers),
            number(means["fastest_ratio"], 2), "", "", number(means["floor"], 2), "",
            number(means["memory_ratio"], 2), "", ""]
    return _markdown(head, [*(_row(entry, peers) for entry in entries), last])


def peer_table(entries):
    """A Markdown table of the peers' seconds alone: what they took, and their share of the peak."""
    peers = sorted({name for entry in entries for name in entry.get("peers", {})})
    rows = []
    for entry in entries:
        d = derive(entry)
        cells = []
        for peer in peers:
            figures = entry.get("peers", {}).get(peer)
            if figures is None:
                cells.append("–")
                continue
            mark = "> " if figures["over"] else ""
            scaled = f" ({figures['scaled_from']} sl.)" if "scaled_from" in figures else ""
            cells.append(mark + number(figures["seconds"]) + scaled)
        best = d["peer_shares"].get(d["fastest"])
        memory = memory_above_inputs(entry.get("peers", {}).get("cotengra-numpy", {}), "peer")
        rows.append([entry["name"], entry["dtype"], str(entry["nslices"]), *cells,
                     d["fastest"] or "–", _percent(best),
                     "–" if memory is None else number(memory / MIB)])
    head = ["network", "dtype", "slices", *(f"{peer} s" for peer in peers), "fastest",
            "its share of GEMM peak", "cotengra-numpy peak MiB"]
    return _markdown(head, rows)


def _markdown(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def verdict(entries):
    """Lines that say how far Tenon is from what it has to reach."""
    means = summary(entries)
    lines = [f"{means['networks']} networks; geometric means:"]
    for peer, ratio in means["ratios"].items():
        least = " (at least: it was stopped on some)" if peer in means["least"] else ""
        lines.append(f"  {number(ratio)} times as fast as {peer}{least}")
    lines.append(f"  {number(means['fastest_ratio'])} times as fast as the fastest of them; "
                 f"{number(means['memory_ratio'])} of cotengra's memory above the inputs")
    lines.append(f"  {number(means['floor'])} times the machine's floor, "
                 f"{number(means['worst_floor'])} at worst")
    for name, dtype, ratio, strong in sorted(means["slower"], key=lambda item: item[2]):
        note = " (that peer is above 60 % of the GEMM peak: the floor decides)" if strong else ""
        lines.append(f"  slower than the fastest peer: {name} {dtype}, {number(ratio)}{note}")
    return "\n".join(lines)
