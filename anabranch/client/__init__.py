"""Typed client of the HTTP API: `Client`, and `AsyncClient` for asyncio.

Every call raises ApiError, whose message says what happened and what to do.
"""

from anabranch.client.calls import StreamEvent
from anabranch.client.clients import AsyncClient, Client
from anabranch.http_transport import DEFAULT_URL, ApiError
from schemas.event_feed import LogEntry
from schemas.ingest import IngestReceipt
from schemas.judgements import FeedbackReceipt
from schemas.questions import (
    AnswerDelta,
    Filters,
    QueryResponse,
    SearchResponse,
    SearchResult,
    StepProgress,
)
from schemas.responses import Document, ErasureReceipt, JobStatus, RunSummary

__all__ = [
    "AnswerDelta",
    "ApiError",
    "AsyncClient",
    "Client",
    "DEFAULT_URL",
    "Document",
    "ErasureReceipt",
    "FeedbackReceipt",
    "Filters",
    "IngestReceipt",
    "JobStatus",
    "LogEntry",
    "QueryResponse",
    "RunSummary",
    "SearchResponse",
    "SearchResult",
    "StepProgress",
    "StreamEvent",
]
