"""The interface of zadu 0.5, measured by a Tenon server.

    from tenon import ZADU          # in place of: from zadu import ZADU
    scores = ZADU([{"id": "tnc", "params": {"k": 20}}], hd).measure(ld)

Arguments, shapes, keys and classes of errors are zadu's; the README of the package tells what
differs.
"""

from tenon.measure_ids import MEASURE
from tenon.zadu._config import ExecutionConfig
from tenon.zadu._runner import ZADU, EmbeddingExecutionError, EmbeddingResult
from tenon.zadu._spec import MeasureId, Spec, make_spec

__all__ = ["MEASURE", "ZADU", "EmbeddingExecutionError", "EmbeddingResult", "ExecutionConfig",
           "MeasureId", "Spec", "make_spec"]
