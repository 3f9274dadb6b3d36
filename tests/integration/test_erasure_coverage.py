"""An erasure deletes from every table, or a listed reason says why it need not."""

from __future__ import annotations

from sql.database import close_pool, open_pool
from sql.operations.erasure import AFFECTED_TABLES, DOCUMENT_TABLES, REVISION_TABLES

ERASED_TABLES = {*REVISION_TABLES, *DOCUMENT_TABLES, *AFFECTED_TABLES} - {"keystore.keys"}
WITHDRAWAL_TABLES = {"visible": "its rows go with the withdrawal", "corpus_deltas": "counts"}
"""Of a document, but not its words."""
LOG_TABLES = {
    "events": "sealed, or of topics that forget; what the door and the outcomes said goes at once",
    "topics": "names and settings",
    "log_readers": "places",
    "expired_ranges": "places",
    "expired_batches": "a number",
    "consumer_offsets": "places",
    "inbox": "ids, places, orders, and hashes of payloads",
    "index_changes": "transactions, and names of tenants and generations",
    "dropped_states": (
        "ids of documents and names of blobs, which are hashes; an erasure finds the blobs by the "
        "document"
    ),
    "reader_status": "codes, and types and versions of events",
    "reloaded_profiles": "settings",
    "migration_checksums": "of files of ours",
    "supabase_migrations.schema_migrations": "files of ours",
}
DECISION_TABLES = {
    "generations": "configurations",
    "live_generation": "a name",
    "generation_builds": "progress, and the code of what stopped a build",
    "generation_engine_calls": "counts",
    "replays": "what was chosen: ids, times, a collection's name",
    "sources": (
        "what was declared: topics, tables, folders, addresses; it is a setting, "
        "and goes with the source"
    ),
    "source_states": "who reads",
    "source_tables": "positions of whole tables",
    "source_progress": "places",
    "document_owners": "names of sources; an erasure forgets the documents' rows",
    "exams": "spans of questions and what became of them; no text of a document",
    "calibrations": "thresholds and counts",
    "collection_profiles": "names of collections and profiles",
    "collection_deletions": "names of collections",
    "experiments": "names of profiles, and times",
    "erasures": "receipts: names and counts",
    "erasure_counts": "counts",
    "audit_events": (
        "actors and actions: names of sources and generations, ids of receipts, replays and keys"
    ),
    "erasure_items": "ids of keys, hashes of blobs' names",
    "erasure_subjects": "ids of documents that were",
    "standing_cursor": "a position in the log",
}
KEY_TABLES = {
    "keystore.keys": "destroyed",
    "keystore.master": "a fingerprint",
    "keystore.signing_keys": "keys that open nothing",
    "keystore.unencrypted_tenants": "tenants and times",
    "keystore.unsigned_events": "offsets",
    "credentials.api_keys": "hashes of secrets",
}


async def test_erasure_covers_every_table(database: str) -> None:
    pool = await open_pool(database, size=1, name="test")
    try:
        rows = await pool.fetch(
            "select case n.nspname when 'anabranch' then c.relname else n.nspname || '.' || "
            "c.relname end as name "
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where c.relkind in ('r', 'p') and not c.relispartition "
            "and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"
        )
    finally:
        await close_pool(pool)
    listed_tables = (
        ERASED_TABLES
        | WITHDRAWAL_TABLES.keys()
        | LOG_TABLES.keys()
        | DECISION_TABLES.keys()
        | KEY_TABLES.keys()
    )
    assert {row["name"] for row in rows} == listed_tables, (
        "a new table needs its place in sql/operations/erasure.py, or a reason here"
    )
