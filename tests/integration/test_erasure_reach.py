"""No table is forgotten by an erasure: each one is removed from, or has a reason for which it need not be."""

from __future__ import annotations

from sql.erasure import BY_DOCUMENT, DERIVED, TOUCHED
from sql.pool import close_pool, open_pool

REMOVED = {*DERIVED, *BY_DOCUMENT, *TOUCHED} - {"keystore.keys"}
WITHDRAWN = {"visible": "its rows go with the withdrawal", "corpus_deltas": "counts"}
"""Of a document, but not its words."""
LOG = {
    "events": "sealed, or of topics that forget; what the door and the outcomes said goes at once",
    "topics": "names and settings",
    "log_readers": "places",
    "gone_events": "places",
    "gone_batches": "a number",
    "groups_reached": "places",
    "handled": "ids, places, orders, and hashes of payloads",
    "index_changes": "transactions, and names of tenants and generations",
    "dropped_states": "ids of documents and names of blobs, which are hashes; an erasure finds the blobs by the document",
    "reader_pauses": "codes, and types and versions of events",
    "migration_checksums": "of files of ours",
    "supabase_migrations.schema_migrations": "files of ours",
}
DECISIONS = {
    "generations": "configurations",
    "live_generation": "a name",
    "generation_builds": "progress, and the code of what stopped a build",
    "generation_engine_calls": "counts",
    "replays": "what was chosen: ids, times, a collection's name",
    "sources": "what was declared: topics, tables, folders, addresses; it is a setting, and goes with the source",
    "source_states": "who reads",
    "source_tables": "positions of whole tables",
    "source_progress": "places",
    "document_owners": "names of sources; an erasure forgets the documents' rows",
    "erasures": "receipts: names and counts",
    "erasure_counts": "counts",
    "audit_events": "who did what: names of sources and generations, ids of receipts, replays and keys",
    "erasure_items": "ids of keys, hashes of blobs' names",
    "erasure_subjects": "ids of documents that were",
}
KEYS = {
    "keystore.keys": "destroyed",
    "keystore.master": "a fingerprint",
    "keystore.signing_keys": "keys that open nothing",
    "keystore.readable": "tenants and times",
    "keystore.unsigned_events": "offsets",
    "credentials.api_keys": "hashes of secrets",
}


async def test_every_table_is_known_to_the_erasure(database: str) -> None:
    pool = await open_pool(database, size=1, name="test")
    try:
        rows = await pool.fetch(
            "select case n.nspname when 'anabranch' then c.relname else n.nspname || '.' || c.relname end as name "
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where c.relkind in ('r', 'p') and not c.relispartition and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'"
        )
    finally:
        await close_pool(pool)
    known = REMOVED | WITHDRAWN.keys() | LOG.keys() | DECISIONS.keys() | KEYS.keys()
    assert {row["name"] for row in rows} == known, "a new table needs its place in sql/erasure.py, or a reason here"
