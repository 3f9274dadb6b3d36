"""Error classes, grouped by what happens next.

    AnabranchError
    ├── TransientError          the runner retries
    │   ├── EngineUnavailable   the stage pauses until the engine is back
    │   │   └── NoSpace         the disk is full, or below its reserve (HTTP 507)
    │   ├── LogUnavailable
    │   └── DatabaseUnavailable
    ├── PermanentError          the event becomes a dead letter (HTTP: a 4xx problem)
    │   ├── MalformedEvent
    │   ├── DuplicateEventId
    │   ├── UnreadableDocument
    │   ├── LimitExceeded
    │   ├── ForbiddenAddress
    │   ├── CredentialsInUrl
    │   ├── Unauthenticated     no valid credential (HTTP 401)
    │   ├── Forbidden           the role, tenant or origin does not allow it (HTTP 403)
    │   ├── NotFound
    │   ├── InvalidRequest
    │   │   └── CursorAhead     the log was restored or recreated after the cursor
    │   ├── DataErased          its key was destroyed: the event is skipped
    │   │   └── KeyLost         its share is not in the key file: the event is skipped
    │   └── InvalidModelOutput
    └── FatalError              the worker stops
        ├── NewerVersion        a newer worker wrote the event, during a rolling upgrade
        ├── ConfigurationError
        └── GenerationMismatch

Each error has a `code` for programs, a `detail` for people and a `remedy` that says what to do. Any
other exception is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from schemas.urls import redact_urls


class AnabranchError(Exception):
    code = "ERROR"
    remedy = ""

    def __init__(self, detail: str, *, code: str | None = None, remedy: str | None = None) -> None:
        # Dead letters, logs and responses contain details, so credentials in URLs must not pass.
        detail = redact_urls(detail)
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.remedy = remedy if remedy is not None else type(self).remedy

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "detail": self.detail, "remedy": self.remedy}

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.detail, self.code, self.remedy))


def _rebuild(
    error_class: type[AnabranchError], detail: str, code: str, remedy: str
) -> AnabranchError:
    return error_class(detail, code=code, remedy=remedy)


class TransientError(AnabranchError):
    code = "TRY_AGAIN"


class EngineUnavailable(TransientError):
    code = "ENGINE_UNAVAILABLE"
    remedy = "Check that the model server responds. Work resumes automatically when it does."

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        remedy: str | None = None,
        n_answers: int | None = None,
    ) -> None:
        """`n_answers` counts the engine's earlier replies to this process, if known."""
        super().__init__(detail, code=code, remedy=remedy)
        self.n_answers = n_answers


class NoSpace(EngineUnavailable):
    code = "NO_SPACE"
    remedy = (
        "Free disk space or move the data folder. ANABRANCH_API__DISK_RESERVE sets the reserve."
    )


class LogUnavailable(TransientError):
    code = "LOG_UNAVAILABLE"
    remedy = "Check that Kafka or the embedded Postgres is running. Run `anabranch doctor`."


class DatabaseUnavailable(TransientError):
    code = "DATABASE_UNAVAILABLE"
    remedy = "Check that Postgres is running. Run `anabranch doctor`."


class PermanentError(AnabranchError):
    code = "REJECTED"


class MalformedEvent(PermanentError):
    code = "MALFORMED_EVENT"
    remedy = (
        "Correct the event by its JSON Schema (docs/reference/events) and send it again with a new "
        "ce_id."
    )


class DuplicateEventId(PermanentError):
    code = "DUPLICATE_ID"
    remedy = (
        "Send each change with its own ce_id. This ce_source and ce_id were used with another "
        "payload."
    )


class UnreadableDocument(PermanentError):
    code = "UNREADABLE_DOCUMENT"


class LimitExceeded(PermanentError):
    code = "LIMIT_EXCEEDED"


class ForbiddenAddress(PermanentError):
    code = "FORBIDDEN_ADDRESS"
    remedy = (
        "Use a public http or https address, or allow the host with "
        "ANABRANCH_INGEST__URL_ALLOW=host:port."
    )


class CredentialsInUrl(PermanentError):
    code = "CREDENTIALS_IN_URL"
    remedy = (
        "Send a URL without user and password, since URLs are stored in the log. Presigned URLs "
        "are allowed: they are stored without their signature."
    )


class Unauthenticated(PermanentError):
    code = "UNAUTHENTICATED"
    remedy = (
        "Send `Authorization: Bearer TOKEN` with an API key or the token in `server.json` of the "
        "data folder. `anabranch login` stores one for the command line."
    )


class Forbidden(PermanentError):
    code = "FORBIDDEN"


class NotFound(PermanentError):
    code = "NOT_FOUND"


class InvalidRequest(PermanentError):
    code = "INVALID_REQUEST"


class CursorAhead(InvalidRequest):
    code = "CURSOR_AHEAD"
    remedy = (
        "Read from `begin` or from `now`. The log was restored or recreated after this cursor was "
        "issued."
    )


class DataErased(PermanentError):
    code = "ERASED"
    remedy = "Send the document again if you still need it. Erased data cannot be restored."


class KeyLost(DataErased):
    code = "KEY_LOST"
    remedy = "Restore a newer copy of the key file `shares.key`, or send the document again."


class BudgetExceeded(PermanentError):
    """A call of a model was not made, since a cap of the profile does not allow it."""

    code = "BUDGET_EXCEEDED"
    remedy = (
        "Raise the cap in the profile's `budget`, or choose a profile that allows more. A cap on "
        "the cost needs the model's price in ANABRANCH_PRICES__MODELS."
    )


class InvalidModelOutput(PermanentError):
    """A model's output does not match the requested schema.

    `calls` and `tokens` count what the failed attempts cost. They do not survive pickling.
    """

    code = "MODEL_OUTPUT"
    remedy = "Use a model that supports structured output."

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        remedy: str | None = None,
        calls: int = 1,
        tokens: int = 0,
    ) -> None:
        super().__init__(detail, code=code, remedy=remedy)
        self.calls, self.tokens = calls, tokens


def too_large_error(max_bytes: int, size: int | None = None) -> LimitExceeded:
    """Make the error for a document above the limit, of unknown `size` where it still arrives."""
    return LimitExceeded(
        f"The document exceeds the limit of {max_bytes:,} bytes"
        + ("." if size is None else f": it has {size:,} bytes."),
        code="TOO_LARGE",
        remedy="Split the document, or raise ANABRANCH_INGEST__MAX_BYTES.",
    )


def unknown_resource_error(
    kind: str, resource_id: object, remedy: str, code: str | None = None
) -> NotFound:
    return NotFound(f"Unknown {kind} {resource_id}.", code=code, remedy=remedy)


def unknown_document_error(document_id: object) -> NotFound:
    remedy = (
        "It may have been erased. List documents with `anabranch documents list` or "
        "GET /v1/documents."
    )
    return unknown_resource_error("document", document_id, remedy)


def unknown_run_error(run_id: object) -> NotFound:
    remedy = "It may not be recorded yet. List runs with `anabranch runs list` or GET /v1/runs."
    return unknown_resource_error("run", run_id, remedy)


class FatalError(AnabranchError):
    code = "FATAL"


class NewerVersion(FatalError):
    code = "NEWER_VERSION"
    remedy = "Upgrade this worker. Another worker already writes a newer version of this event."


class ConfigurationError(FatalError):
    code = "CONFIGURATION"


class GenerationMismatch(FatalError):
    code = "GENERATION_MISMATCH"
    remedy = (
        "Start with the settings of the existing index (`--set section.key=value`, anabranch.toml "
        "or the environment), or use another --data folder. To change the settings, build a new "
        "index with `anabranch reindex --set`."
    )


def join_sentences(detail: str, remedy: str) -> str:
    """Return both as one text, for callers who get no fields."""
    return f"{detail.rstrip('.')}. {remedy}".rstrip()


def format_invalid_fields(problems: Iterable[Mapping[str, Any]], whole: str = "value") -> str:
    """Return `field: reason` of every problem; of one of no single field, `whole` in its place.

    `problems` are those of `ValidationError.errors()`.
    """
    return "; ".join(
        # pydantic puts the class of the exception before the message of a validator.
        f"{'.'.join(map(str, problem['loc'])) or whole}: "
        f"{problem['msg'].removeprefix('Value error, ')}"
        for problem in problems
    )
