"""Contents of the tables without ids, positions and times.

Two logs with the same events give equal views.
"""

from __future__ import annotations

import json
from typing import Any

from sql.database import Pool

VISIBLE_JOIN = (
    "join live_generation g on g.name = t.generation join visible v using (generation, "
    "document_id, ord) join documents d on d.id = t.document_id"
)
VIEWS = {
    "documents": (
        "select external_id, title, collection, tags, metadata, language, filename, "
        "media_type, withdrawn is not null as withdrawn from documents"
    ),
    "revisions": (
        "select d.external_id, r.title, r.filename from document_revisions r join "
        "documents d on d.id = r.document_id"
    ),
    "texts": (
        "select d.external_id, t.title, t.language, t.characters, t.markdown from "
        f"revision_texts t {VISIBLE_JOIN}"
    ),
    "parents": (
        "select d.external_id, t.ordinal, t.section, t.char_start, t.char_end, t.text "
        f"from parent_chunks t {VISIBLE_JOIN}"
    ),
    "children": (
        "select d.external_id, t.ordinal, t.kind, t.prefix, t.text from child_chunks t "
        f"{VISIBLE_JOIN}"
    ),
    "vectors": (
        "select d.external_id, t.embedding::text, t.background_dense from chunk_vectors t "
        f"{VISIBLE_JOIN}"
    ),
    "states": (
        f"select d.external_id, t.blob_offset, t.blob_length from chunk_states t {VISIBLE_JOIN}"
    ),
    "mentions": (
        "select d.external_id, t.type, t.key, t.name, t.char_start from entity_mentions "
        f"t {VISIBLE_JOIN}"
    ),
    "relations": f"select d.external_id, t.type from relations t {VISIBLE_JOIN}",
    "claims": f"select d.external_id, t.value from claims t {VISIBLE_JOIN}",
    "runs": (
        "select kind, request->>'query' as query, generation, response->>'answer' as answer "
        "from runs"
    ),
    "feedback": "select query, useful, note from feedback",
    "judgements": "select external_id, quote, grade from judgements",
    "facts": (
        "select subject, predicate, object, certainty, source, status, stated_by, decided_by, "
        "reason from facts"
    ),
    "dead_letters": (
        "select stage, generation, original_type, code, detail, resolution, "
        "closed_reason from dead_letters"
    ),
    "generations": "select name, state, base, purpose from generations",
    "live": "select name from live_generation",
    "sources": (
        "select name, ce_source, spec->'connector'->>'kind' as kind, epoch, removed, "
        "withdraw from sources"
    ),
    "erasures": "select scope, documents, removed, events, method, remains from erasures",
    "audit": "select tenant, actor, role, action, outcome from audit_events",
    "destroyed": "select count(*) from keystore.keys where wrapped is null",
}


async def fetch_views(pool: Pool) -> dict[str, list[Any]]:
    return {
        name: sorted(
            [
                json.loads(row["row"])
                for row in await pool.fetch(f"select to_jsonb(q)::text as row from ({query}) q")
            ],
            key=_sort_key,
        )
        for name, query in VIEWS.items()
    }


def _sort_key(row: Any) -> str:
    return json.dumps(row, sort_keys=True)
