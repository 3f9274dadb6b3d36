"""The topics: names, partitions, retention."""

from __future__ import annotations

RAW = "raw"
ACCEPTED = "accepted"
OCR_DONE = "ocr_done"
CHUNKED = "chunked"
ENTITIES = "entities"
EMBEDDED = "embedded"
QUERIES = "queries"
FEEDBACK = "feedback"
OUTCOMES = "outcomes"
CONTROL = "control"
DEAD_LETTERS = "dead_letters"

DOCUMENT_TOPICS = (RAW, ACCEPTED, OCR_DONE, CHUNKED, ENTITIES, EMBEDDED, OUTCOMES)
"""Same partition count, keyed by document id (raw: by whatever its producer chose)."""
SINGLE_PARTITION_TOPICS = (QUERIES, FEEDBACK, CONTROL, DEAD_LETTERS)
"""One partition each."""

WEEK_MS = 7 * 24 * 3600 * 1000
RETENTION_MS = {RAW: WEEK_MS, OUTCOMES: WEEK_MS}
"""What producers write and read is in the clear, and so has an end; all else is kept for ever."""
MAX_EVENT_BYTES = 900_000
"""No event of ours is larger; what is larger goes into a blob."""


def get_partition_counts(document_partitions: int) -> dict[str, int]:
    return dict.fromkeys(DOCUMENT_TOPICS, document_partitions) | dict.fromkeys(SINGLE_PARTITION_TOPICS, 1)
