"""What went wrong, named by what happens next.

    AnabranchError
    ├── TransientError          the runner tries again
    │   ├── EngineUnavailable   the stage pauses until the engine is back
    │   │   └── NoSpace         the disk is full, or below its reserve (HTTP 507)
    │   ├── LogUnavailable
    │   └── DatabaseUnavailable
    ├── PermanentError          the runner buries the event (HTTP: a 4xx problem)
    │   ├── MalformedEvent
    │   ├── DuplicateEventId
    │   ├── UnreadableDocument
    │   ├── LimitExceeded
    │   ├── ForbiddenAddress
    │   ├── CredentialsInUrl
    │   ├── Unauthenticated     no valid credential (HTTP 401)
    │   ├── Forbidden           the caller's role, tenant or origin does not allow it (HTTP 403)
    │   ├── NotFound
    │   ├── InvalidRequest
    │   │   └── PlaceAhead      a place in a log that was restored or made anew since
    │   ├── Erased              its key was destroyed: it is passed over
    │   │   └── KeyLost         its key was in no backup: the same
    │   └── ModelOutput
    └── FatalError              the worker stops
        ├── NewerVersion        an event of ours is newer than this program: a rolling upgrade
        ├── ConfigurationError
        └── GenerationMismatch

Each carries a `code` for programs, a `detail` for people and a `remedy` that names the way out. Anything else is a bug.
"""

from __future__ import annotations

from schemas.urls import redact_urls


class AnabranchError(Exception):
    code = "ERROR"
    remedy = ""

    def __init__(self, detail: str, *, code: str | None = None, remedy: str | None = None) -> None:
        # Details go into dead letters, logs and answers: no credential that stands in a URL may go with them.
        detail = redact_urls(detail)
        super().__init__(detail)
        self.detail = detail
        self.code = code or type(self).code
        self.remedy = remedy if remedy is not None else type(self).remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.detail, self.code, self.remedy))


def _rebuild(error_class: type[AnabranchError], detail: str, code: str, remedy: str) -> AnabranchError:
    return error_class(detail, code=code, remedy=remedy)


class TransientError(AnabranchError):
    code = "TRY_AGAIN"


class EngineUnavailable(TransientError):
    code = "ENGINE_UNAVAILABLE"
    remedy = "Check that the model server answers; work goes on by itself when it does."

    def __init__(self, detail: str, *, code: str | None = None, remedy: str | None = None, n_answers: int | None = None) -> None:
        """`answers` is how often it has answered this program so far, where that is counted."""
        super().__init__(detail, code=code, remedy=remedy)
        self.n_answers = n_answers


class NoSpace(EngineUnavailable):
    code = "NO_SPACE"
    remedy = "Free disk space, or move the data folder; ANABRANCH_API__DISK_RESERVE says how much is kept free."


class LogUnavailable(TransientError):
    code = "LOG_UNAVAILABLE"
    remedy = "Check that Kafka (or the embedded Postgres) is running; `anabranch doctor` says which."


class DatabaseUnavailable(TransientError):
    code = "DATABASE_UNAVAILABLE"
    remedy = "Check that Postgres is running; `anabranch doctor` says why it does not answer."


class PermanentError(AnabranchError):
    code = "REJECTED"


class MalformedEvent(PermanentError):
    code = "MALFORMED_EVENT"
    remedy = "Compare the event with its JSON Schema (docs/reference/events) and send it again under a new ce_id."


class DuplicateEventId(PermanentError):
    code = "DUPLICATE_ID"
    remedy = "The same ce_source and ce_id came with another payload: give each change an id of its own."


class UnreadableDocument(PermanentError):
    code = "UNREADABLE_DOCUMENT"


class LimitExceeded(PermanentError):
    code = "LIMIT_EXCEEDED"


class ForbiddenAddress(PermanentError):
    code = "FORBIDDEN_ADDRESS"
    remedy = "Only public http and https addresses are fetched; exempt a host with ANABRANCH_INGEST__URL_ALLOW=host:port."


class CredentialsInUrl(PermanentError):
    code = "CREDENTIALS_IN_URL"
    remedy = "Send a URL without user and password: it would be kept in the log. A presigned URL is fetched, and kept without its signature."


class Unauthenticated(PermanentError):
    code = "UNAUTHENTICATED"
    remedy = "Send `Authorization: Bearer TOKEN`, with the token of the ready file or an API key; `anabranch login` stores one for the command line."


class Forbidden(PermanentError):
    code = "FORBIDDEN"


class NotFound(PermanentError):
    code = "NOT_FOUND"


class InvalidRequest(PermanentError):
    code = "INVALID_REQUEST"


class CursorAhead(InvalidRequest):
    code = "PLACE_AHEAD"
    remedy = "The log was restored from a backup, or made anew, since that place was told: read from `begin`, or from `now`."


class DataErased(PermanentError):
    code = "ERASED"
    remedy = "Nothing brings it back; send the document again if it is wanted after all."


class KeyLost(DataErased):
    code = "KEY_LOST"
    remedy = "Restore a newer backup of the schema `keystore`; else send the document again."


class InvalidModelOutput(PermanentError):
    """A model that does not keep to the form it was asked for. `calls` and `tokens` are what it took to find out; another process is not told them."""

    code = "MODEL_OUTPUT"
    remedy = "Use a model that supports structured output."

    def __init__(self, detail: str, *, code: str | None = None, remedy: str | None = None, calls: int = 1, tokens: int = 0) -> None:
        super().__init__(detail, code=code, remedy=remedy)
        self.calls, self.tokens = calls, tokens


class FatalError(AnabranchError):
    code = "FATAL"


class NewerVersion(FatalError):
    code = "NEWER_VERSION"
    remedy = "Upgrade this worker: another one already writes a newer version of this event."


class ConfigurationError(FatalError):
    code = "CONFIGURATION"


class GenerationMismatch(FatalError):
    code = "GENERATION_MISMATCH"
    remedy = (
        "Start with the index's values (`--set section.key=value`, anabranch.toml or the environment) and then, if others are wanted, "
        "build another index beside this one with `anabranch reindex --set`; or use another --data folder."
    )
