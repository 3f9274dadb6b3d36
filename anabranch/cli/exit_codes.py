"""Exit codes."""

from __future__ import annotations

from schemas.errors import (
    AnabranchError,
    ConfigurationError,
    FatalError,
    GenerationMismatch,
    InvalidRequest,
    NotFound,
    TransientError,
)

OK, FAILED, USAGE, NOT_FOUND, REFUSED, PARTIAL_FAILURE, GATE_FAILED, UNREACHABLE, INTERRUPTED = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    130,
)


def to_exit_code(error: AnabranchError) -> int:
    match error:
        case ConfigurationError() | GenerationMismatch() | InvalidRequest():
            return USAGE
        case FatalError(code="MISCONFIGURED"):
            return USAGE
        case NotFound():
            return NOT_FOUND
        case TransientError():
            return UNREACHABLE
    return FAILED
