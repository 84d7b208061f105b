"""How much a report tells: the option ``detail`` of contractions and measurements."""

from __future__ import annotations

from typing import Any

from tenon._measure_specs import short_names
from tenon.errors import InvalidRequest
from tenon.v1 import execution_pb2


def fill_detail(options: dict[str, Any], result: Any) -> None:
    """Takes ``detail`` out of the options into ``ContractResultOptions`` or its like of Measure."""
    detail = options.pop("detail", None)
    if detail is None:
        return
    known = short_names(execution_pb2.ReportDetail.DESCRIPTOR)
    if detail not in known:
        raise InvalidRequest(f"'{detail}' is not one of " + ", ".join(known),
                             reason="BAD_PARAMETER", field="detail")
    result.report_detail = known[detail]
