"""The package needs NumPy and grpcio alone; what else it can use it imports when it does."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
sys.path[:] = {path!r}
for name in ("scipy", "sklearn", "torch", "matplotlib", "tqdm", "dask", "cotengra", "quimb",
             "opt_einsum", "zadu"):
    sys.modules[name] = None
"""


def run(code):
    return subprocess.run([sys.executable, "-c", BLOCK.format(path=sys.path) + code],
                          capture_output=True, text=True)


def test_everything_is_imported_without_optional_packages():
    result = run("import tenon, tenon.measures.gap_index, tenon.metrics, tenon.zadu\n"
                 "print(tenon.ZADU, tenon.metrics.make_scorer('stress'))")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("call,missing", [
    ("tenon.measures.gap_index.compute([[0.0, 1.0]] * 4, [[0.0, 1.0]] * 4)", "pip install scipy"),
    ("tenon.metrics.trustworthiness([[0.0, 1.0]] * 9, [[0.0, 1.0]] * 9, metric='cosine')",
     "pip install scikit-learn")])
def test_what_is_missing_is_said(call, missing):
    result = run("import tenon\n" + call)
    assert result.returncode == 1 and "ImportError" in result.stderr and missing in result.stderr
