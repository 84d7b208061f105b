"""What is measured of Tenon, line by line. Every function returns the figures of one round.

figures   seconds   at the client, from the call to the summary: the data set is sent with the call,
                    and the original side is built by it
          raw       the same of every call; `parts`: where the server says that it went
          cpu_seconds  of a call, the server's processors together
          further   seconds of each further projection, sent when the one before is answered
          scores    by spec, of one call; `all_scores` of calls with other seeds, if randomised
          memory    resident set before a call by handle on the fresh server, and its peak
          load      processors that other work took meanwhile
"""

import statistics

import numpy as np

import cases
import timing
from measure_server import medians

_FURTHER = 4
_SEEDS = 6  # calls of a randomised measure, from which its spread is taken
_SMALL_ROWS, _SMALL_CALLS = 200, 100
_CHECKED_ROWS = 50


def _differences(times):
    return [after - before for before, after in zip(times, times[1:])]


def run_case(service, options, case, way):
    """One case under one budget."""
    data, projection, labels = cases.normal_data(case.rows, case.columns)
    figures = {"over": False}
    randomised = any(alias in cases.RANDOMISED for alias in case.measures)
    with service.server(options.threads) as server:
        figures["server_version"] = server.version

        def header(**fields):
            return server.header(case.measures, labels=labels if case.labels else None,
                                 budget=way.memory_limit, **fields)

        def timed(seed):
            return server.measure(header(data=data, seed=seed), data, [projection])

        stored = server.upload(data)
        with server.resident(figures):
            fresh = server.measure(header(handle=stored), None, [projection])
        with server.load(figures):
            server.reset_cpu()
            calls = [timed(0)]
            repeats = timing.plan(calls[0].seconds, 1, options.cap, options.repeat).repeats
            if randomised:
                repeats = max(repeats, _SEEDS)
            calls += [timed(seed) for seed in range(1, max(2, repeats))]
            figures["cpu_seconds"] = server.cpu_seconds() / len(calls)
            stream = server.measure_one_by_one(header(data=data, in_flight=1), data,
                                               [projection] * (1 + options.further))
    figures.update(medians(calls), scores=calls[0].scores[0],
                   further=statistics.median(_differences(stream.times)),
                   planned_bytes=fresh.accepted.planned_peak_bytes,
                   measured_bytes=fresh.report.memory.measured_peak_bytes)
    if randomised:
        figures["all_scores"] = [call.scores[0] for call in calls]
    return figures


def run_further(service, options, rows, expected):
    """Trustworthiness and continuity one by one: the first projection, and each further one.

    With `expected` projections announced the server may keep the ranks of the data set.
    """
    data, projection, _ = cases.normal_data(rows, 50)
    figures = {"over": False}
    with service.server(options.threads) as server:
        header = server.header(("tnc",), data=data, expected=expected, in_flight=1)
        count = 1 + max(_FURTHER, options.further)
        server.measure_one_by_one(header, data, [projection] * 2)
        with server.load(figures):
            streams = [server.measure_one_by_one(header, data, [projection] * count)
                       for _ in range(3)]
    firsts = [stream.times[0] for stream in streams]
    further = [seconds for stream in streams for seconds in _differences(stream.times)]
    kinds = streams[0].report.original_resources
    return {**figures, "seconds": statistics.median(firsts), "raw": firsts,
            "further": statistics.median(further), "raw_further": further,
            "parts": streams[0].parts(), "resources": [str(kind.key) for kind in kinds]}


def run_stream(service, options, measures, count):
    """Many projections of the digits in one call."""
    data, projections = cases.digits(count)
    figures = {"over": False}
    with service.server(options.threads) as server:
        header = server.header(measures, data=data, expected=count)
        server.measure(header, data, projections[:2])
        server.reset_cpu()
        with server.load(figures):
            calls = [server.measure(header, data, projections)]
            repeats = timing.plan(calls[0].seconds, 1, options.cap, options.repeat).repeats
            calls += [server.measure(header, data, projections) for _ in range(repeats - 1)]
        figures["cpu_seconds"] = server.cpu_seconds() / len(calls)
    return {**figures, **medians(calls), "scores": calls[0].scores}


def run_large(service, options, rows, threads, budget):
    """One projection of many rows under a budget, checked row by row."""
    data, projection, _ = cases.normal_data(rows, 50)
    figures = {"over": False}
    with service.server(threads) as server:
        handle = server.upload(data)
        header = server.header(("tnc",), handle=handle, budget=budget, local=True)
        server.reset_cpu()
        with server.load(figures), server.resident(figures):
            answer = server.measure(header, None, [projection])
        figures["cpu_seconds"] = server.cpu_seconds()
    local = answer.local_arrays()
    return {**figures, **medians([answer]), "scores": answer.scores[0],
            "planned_bytes": answer.accepted.planned_peak_bytes,
            "measured_bytes": answer.report.memory.measured_peak_bytes,
            "difference": row_difference(data, projection, local)}


def _order(points, row):
    """All rows by distance from one, itself first, ties by index; and the rank of every row."""
    squares = ((points - points[row]) ** 2).sum(axis=1)
    squares[row] = -1
    order = np.argsort(squares, kind="stable")
    ranks = np.empty(len(points), np.int64)
    ranks[order] = np.arange(len(points))
    return order, ranks


def row_difference(data, projection, local):
    """The largest difference of local scores from their definition, at rows drawn at random.

    J. Venna and S. Kaski, Neighborhood preservation in nonlinear projection methods, ICANN 2001.
    """
    n, k = len(data), cases.NEIGHBORS
    scale = 2 / (k * (2 * n - 3 * k - 1))
    worst = 0.0
    for row in np.random.default_rng(1).choice(n, min(n, _CHECKED_ROWS), replace=False):
        (order, ranks), (placed, seen) = _order(data, row), _order(projection, row)
        expected = {
            "local_trustworthiness": 1 - scale * np.maximum(ranks[placed[1:k + 1]] - k, 0).sum(),
            "local_continuity": 1 - scale * np.maximum(seen[order[1:k + 1]] - k, 0).sum()}
        for key, value in expected.items():
            worst = max(worst, abs(float(local[key][row]) - float(value)))
    return worst


def run_small(service, options):
    """Five measures of a few rows: one frame each way, seconds inside the server."""
    data, projection, _ = cases.normal_data(_SMALL_ROWS, 50)
    figures = {"over": False}
    with service.server(options.threads) as server:
        handle = server.upload(data)
        server.reset_cpu()
        with server.load(figures):
            calls = [server.measure_inline(server.header(cases.SUITE, handle=handle), projection)
                     for _ in range(_SMALL_CALLS)]
        figures["cpu_seconds"] = server.cpu_seconds() / len(calls)
    calls = calls[len(calls) // 10:]  # the first ones warm the client up too
    figures.update(medians(calls))
    return {**figures, "client_seconds": figures["seconds"],
            "seconds": figures["parts"]["request_seconds"]}
