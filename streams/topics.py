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
"""Topics with the same partition count, keyed by document id (`raw`: by a key of the producer's
choice).
"""
SINGLE_PARTITION_TOPICS = (QUERIES, FEEDBACK, CONTROL, DEAD_LETTERS)

WEEK_MS = 7 * 24 * 3600 * 1000
RETENTION_MS = {RAW: WEEK_MS, OUTCOMES: WEEK_MS}
"""Topics that producers write or read are not encrypted, so their records expire. Others stay
forever.
"""
MAX_EVENT_BYTES = 900_000
"""Size limit of our events, below Kafka's default of 1 MB; larger content goes into a blob."""


def get_partition_counts(document_partitions: int) -> dict[str, int]:
    return dict.fromkeys(DOCUMENT_TOPICS, document_partitions) | dict.fromkeys(
        SINGLE_PARTITION_TOPICS, 1
    )
