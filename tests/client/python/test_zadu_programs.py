"""Programs as zadu's documentation teaches them, run with both packages."""

import numpy as np
import pytest

import tenon
from zadu_peer import close

DATA = """
import numpy as np
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
original, labels = load_iris(return_X_y=True)
projection = PCA(n_components=2, random_state=0).fit_transform(original)
"""

PROGRAMS = {
    "README": """
from PACKAGE import ZADU
numbers = np.random.default_rng(0)
points = numbers.normal(size=(200, 16))
plane = points[:, :2] + 0.05 * numbers.normal(size=(200, 2))
out = ZADU([{"id": "tnc", "params": {"k": 20}}, {"id": "mrre", "params": {"k": 20}}],
           points).measure(plane)
""",
    "quick start": """
from PACKAGE import ZADU
scores = ZADU([{"id": "tnc", "params": {"k": 10}}, {"id": "stress"}], original).measure(projection)
hits = ZADU([{"id": "nh", "params": {"k": 10}}], original).measure(projection, label=labels)
out = [scores, hits, round(scores[0]["trustworthiness"], 3), round(scores[1]["stress"], 3)]
""",
    "named identifiers": """
from PACKAGE import MEASURE, MeasureId, Spec, ZADU, make_spec
specs = [make_spec(MEASURE.TNC, k=10), make_spec(MEASURE.STRESS), make_spec("pr"),
         {"id": MeasureId.SRHO}]
out = [specs[:3], ZADU(specs, original).measure(projection), [str(m) for m in MEASURE],
       f"{MEASURE.GI}", MEASURE.SNC == "steadiness_cohesiveness", ZADU.ABBREVIATIONS == {
           m.name.lower(): m.value for m in MEASURE}, ZADU.DEFAULT_K]
""",
    "a budget, and what was done": """
from PACKAGE import ExecutionConfig, ZADU
runner = ZADU([{"id": "tnc", "params": {"k": 10}}, {"id": "stress"}], original,
              execution=ExecutionConfig(memory_budget="512MiB"))
out = [runner.measure(projection), runner.max_memory_bytes, runner.execution.memory_budget_bytes]
info = runner.last_run_info
assert info["planned_peak_bytes"] > 0 and info["backend"]
for resource in info["resources"]:
    assert resource["kind"] and resource["provider"] and resource["reused"] in (True, False)
""",
    "longitude and latitude": """
from PACKAGE import ZADU
places = np.deg2rad([[0, 0], [10, 0], [0, 10], [10, 10], [25, -30], [-40, 3]])
plane = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [3, -3], [-4, 0]], dtype=float)
out = ZADU([{"id": "tnc", "params": {"k": 1}}, {"id": "stress"}, {"id": "srho"}], places,
           geodesic=True).measure(plane)
""",
    "scores of points": """
from PACKAGE import ZADU
runner = ZADU([{"id": "dtm", "params": {}}, {"id": "mrre", "params": {"k": 30}}], original,
              return_local=True)
everywhere, each = runner.measure(projection)
out = [everywhere, each, each[1]["local_mrre_false"].shape]
""",
    "many projections": """
from PACKAGE import ExecutionConfig, ZADU
noisy = projection + np.random.default_rng(0).normal(scale=0.2, size=projection.shape)
runner = ZADU([{"id": "tnc", "params": {"k": 10}}], original,
              execution=ExecutionConfig(embedding_workers=2))
out = [runner.measure_many([projection, noisy]), runner.last_run_info["embedding_count"],
       runner.last_run_info["mode"], len(runner.last_run_info["runs"])]
""",
    "a stream": """
from PACKAGE import ExecutionConfig, ZADU
runner = ZADU([{"id": "tnc", "params": {"k": 10}}, {"id": "nh"}], original)

def made():
    numbers = np.random.default_rng(1)
    for noise in (0.0, 0.1, 0.2):
        yield projection + numbers.normal(scale=noise, size=projection.shape)

out = []
stream = runner.iter_measure_many(made(), labels=labels)
try:
    for item in stream:
        out.append([item.index, item.result, item.run_info["embedding_index"]])
finally:
    stream.close()
info = runner.last_run_info
out += [info["embedding_count"], info["input_consumed_count"], info["stream_complete"]]
""",
    "an execution that fails": """
from PACKAGE import EmbeddingExecutionError, ZADU
runner = ZADU([{"id": "sn_stress"}], original)
try:
    runner.measure_many([projection, np.zeros_like(projection)])
except EmbeddingExecutionError as error:
    out = [error.embedding_index, isinstance(error, RuntimeError),
           isinstance(error.__cause__, ValueError), runner.last_run_info]
""",
    "single functions": """
from PACKAGE.measures import mean_relative_rank_error, neighborhood_hit, pearson_r
import PACKAGE.measures.trustworthiness_continuity as tnc
from PACKAGE.measures.stress import measure
out = [mean_relative_rank_error.measure(original, projection, k=20),
       pearson_r.measure(original, projection), neighborhood_hit.measure(projection, labels, k=20),
       tnc.measure(original, projection, 5, return_local=True), measure(original, projection)]
""",
    "gap index": """
from scipy.spatial.distance import pdist, squareform, cityblock
from PACKAGE import ZADU
from PACKAGE.measures import gap_index
out = [ZADU([{"id": "gi", "params": {"metric": metric}}], original).measure(projection)
       for metric in ("euclidean", "cityblock", "chebyshev", cityblock,
                      lambda a, b: abs(a - b).max())]
out.append(gap_index.gap_index(squareform(pdist(original)), projection, metric="precomputed"))
for metric in ("euclidean", "cityblock", cityblock):
    found = gap_index.compute(original, projection, metric)
    out += [found.score, found.triangles, found.deformations, found.original_relative_areas,
            found.embedded_relative_areas]
""",
}


def run(program, package):
    scope = {}
    exec(compile(DATA + program.replace("PACKAGE", package), "program", "exec"), scope)
    return scope["out"]


@pytest.fixture(scope="module", autouse=True)
def default_client(client):
    tenon.set_default_client(client)
    yield
    tenon.set_default_client(None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_the_same_with_another_import(name):
    close(run(PROGRAMS[name], "tenon"), run(PROGRAMS[name], "zadu"))


def test_everything_that_zadu_exports_is_there():
    import zadu
    assert set(zadu.__all__) - {"__version__"} <= set(tenon.__all__)


def test_the_signatures_of_single_functions_are_zadus():
    """Names, order, kinds and defaults; some further ones may follow."""
    import importlib
    import inspect
    for measure in tenon.MEASURE:
        theirs, mine = (inspect.signature(importlib.import_module(
            f"{package}.measures.{measure.value}").measure).parameters
            for package in ("zadu", "tenon"))
        assert [(p.name, p.kind, p.default) for p in mine.values()] == [
            (p.name, p.kind, p.default) for p in theirs.values()], measure


def test_intermediate_results_are_refused_not_ignored():
    points = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(tenon.Unsupported, match="distance_matrices"):
        tenon.measures.stress.measure(points, points, distance_matrices=(points, points))
