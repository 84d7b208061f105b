"""What goes wrong, with the server's stable reason, the field at fault and the figures."""

from __future__ import annotations

import dataclasses

import grpc

from tenon import _wire
from tenon.v1 import errors_pb2

__all__ = ["TenonError", "InvalidRequest", "NotFound", "Refused", "ExceedsBudget", "Unavailable",
           "Cancelled", "DeadlineExceeded", "NotPermitted", "Unsupported"]

_DETAILS = "grpc-status-details-bin"


class TenonError(RuntimeError):
    """A call that failed.

    Attributes:
      code: gRPC's canonical code, for example ``grpc.StatusCode.INVALID_ARGUMENT``.
      reason: the stable name of the cause, for example ``"SHAPE_MISMATCH"``; ``""`` when the server
        was not reached.
      field: path of the request's field at fault, or ``""``.
      metadata: the figures of the message, the unit in the key.
      retry_delay: seconds after which another try may succeed, or ``None``.
    """

    def __init__(self, message: str, *, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN,
                 reason: str = "", field: str = "", metadata: dict[str, str] | None = None,
                 retry_delay: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        self.field = field
        self.metadata = dict(metadata or {})
        self.retry_delay = retry_delay

    def __str__(self) -> str:
        name = self.reason or self.code.name
        at = f" (at {self.field})" if self.field else ""
        return f"{name}: {self.message}{at}"


class InvalidRequest(TenonError, ValueError):
    """The request is wrong: shapes, names, paths, parameters."""


class NotFound(TenonError, LookupError):
    """What the request names is not there, or belongs to somebody else."""


class Refused(TenonError):
    """It exceeds memory, quotas or limits, or the server has too much to do now."""


class ExceedsBudget(Refused, MemoryError):
    """Not even the smallest way to do it fits the request's own memory or temporary budget."""


class Unavailable(TenonError, ConnectionError):
    """No server was reached, or it starts, drains, or has lost its device."""


class Cancelled(TenonError):
    """The call was cancelled."""


class DeadlineExceeded(TenonError, TimeoutError):
    """The time was over, or could not have sufficed."""


class NotPermitted(TenonError, PermissionError):
    """Credentials are missing or do not allow it."""


class Unsupported(TenonError, NotImplementedError):
    """The server or the provider can't do it."""


_CLASSES = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Refused,
    grpc.StatusCode.FAILED_PRECONDITION: Refused,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAUTHENTICATED: NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: NotPermitted,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
}

_BUDGET_REASONS = ("EXCEEDS_MEMORY_BUDGET", "EXCEEDS_TEMPORARY_BUDGET")
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _class_of(code: grpc.StatusCode, reason: str) -> type[TenonError]:
    return ExceedsBudget if reason in _BUDGET_REASONS else _CLASSES.get(code, TenonError)


def from_detail(detail: errors_pb2.ErrorDetail) -> TenonError:
    """The error that stands inside a message, for example in the place of a projection's scores."""
    code = _CODES.get(detail.code, grpc.StatusCode.UNKNOWN)
    delay = detail.retry_delay_seconds if detail.HasField("retry_delay_seconds") else None
    return _class_of(code, detail.reason)(
        detail.message, code=code, reason=detail.reason, field=detail.field,
        metadata=dict(detail.metadata), retry_delay=delay)


@dataclasses.dataclass
class _Details:
    reason: str = ""
    field: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)
    retry_delay: float | None = None


def from_rpc(error: grpc.RpcError) -> TenonError:
    """The error that a failed call of gRPC stands for."""
    code = error.code()
    message = error.details() or ""
    # Of asyncio's metadata dict() would make nothing: it looks like a mapping.
    trailers = {key: value for key, value in error.trailing_metadata() or ()}
    try:
        details = _read(trailers.get(_DETAILS, b""))
    except (ValueError, UnicodeDecodeError):
        details = _Details()
    # A server that can't send details begins the message with the reason's name.
    head, colon, rest = message.partition(": ")
    if not details.reason and colon and head.isupper() and head.replace("_", "").isalpha():
        details.reason, message = head, rest
    return _class_of(code, details.reason)(
        message, code=code, reason=details.reason, field=details.field, metadata=details.metadata,
        retry_delay=details.retry_delay)


def _read(status: bytes) -> _Details:
    details = _Details()
    for number, packed in _wire.fields(status):
        if number != 3 or isinstance(packed, int):
            continue
        parts = dict(_wire.fields(packed))
        kind, value = parts.get(1, b"").decode().rpartition("/")[2], parts.get(2, b"")
        if kind == "google.rpc.ErrorInfo":
            for field, content in _wire.fields(value):
                if field == 1:
                    details.reason = content.decode()
                elif field == 3:
                    entry = dict(_wire.fields(content))
                    details.metadata[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
        elif kind == "google.rpc.BadRequest" and not details.field:
            first = next((content for field, content in _wire.fields(value) if field == 1), b"")
            details.field = dict(_wire.fields(first)).get(1, b"").decode()
        elif kind == "google.rpc.RetryInfo":
            delay = dict(_wire.fields(dict(_wire.fields(value)).get(1, b"")))
            details.retry_delay = delay.get(1, 0) + delay.get(2, 0) / 1e9
    return details
