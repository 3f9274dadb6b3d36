"""Insert rows of a generation for tests of the read side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from schemas.generations import EmbedConfig, Generation, HnswConfig, IndexConfig, LexicalConfig
from schemas.ids import content_id, make_document_id, make_received_id, sha256_hex
from sql.index.lexical import resolve_text_search_config
from sql.index.partitions import create_partitions

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class SampleDocument:
    """One revision of a document; each text is a child chunk with a parent of its own."""

    external_id: str
    texts: Sequence[str]
    language: str | None = "en"
    tenant: str = "default"
    prefix: str = ""
    order: tuple[int, ...] = (1, 1)
    vectors: Sequence[Sequence[float]] | None = None
    title: str | None = None
    collection: str | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    document_date: date | None = None
    revision: int = 1
    readers: tuple[str, ...] | None = None

    @property
    def id(self) -> UUID:
        return make_document_id(self.tenant, "", self.external_id)

    @property
    def event_id(self) -> str:
        return f"{self.external_id}-{self.revision}"

    def chunk_id(self, ordinal: int) -> UUID:
        return content_id("chunk", self.id, ordinal, self.texts[ordinal])

    def find_span(self, ordinal: int, name: str) -> tuple[int, int]:
        """Return the place of a name in the Markdown, or of a character if the text lacks it."""
        start = sum(len(text) + 2 for text in self.texts[:ordinal])
        place = self.texts[ordinal].lower().find(name)
        return (start, start + 1) if place < 0 else (start + place, start + place + len(name))

    def parent_id(self, ordinal: int) -> UUID:
        return content_id("parent", self.id, ordinal, self.texts[ordinal])


async def insert_generation(
    connection: asyncpg.Connection,
    name: str = "g1",
    *,
    dimension: int = 4,
    live: bool = True,
    lexical: LexicalConfig | None = None,
    hnsw: HnswConfig | None = None,
) -> Generation:
    config = IndexConfig(
        embed=EmbedConfig(dimension=dimension),
        lexical=lexical or LexicalConfig(),
        hnsw=hnsw or HnswConfig(),
    )
    generation = Generation(
        name=name, config=config, how={}, topics={}, state="live" if live else "shadow"
    )
    values = generation.model_dump(mode="json")
    await connection.execute(
        "insert into generations (name, config, how, topics, state) values ($1, $2, $3, $4, $5)",
        *(values[key] for key in ("name", "config", "how", "topics", "state")),
    )
    async with connection.transaction():
        await create_partitions(connection, generation, indexed=True)
    if live:
        await connection.execute("insert into live_generation (name) values ($1)", name)
    return generation


async def insert_documents(
    connection: asyncpg.Connection,
    *documents: SampleDocument,
    generation: str = "g1",
    visible: bool = True,
) -> None:
    for document in documents:
        await insert_accepted(connection, document)
        await insert_index_rows(connection, document, generation)
        if visible:
            await activate_revision(connection, document, generation)


async def insert_accepted(connection: asyncpg.Connection, doc: SampleDocument) -> None:
    sha256 = sha256_hex("".join(doc.texts).encode())
    blob = {
        "key": f"{doc.tenant}/{doc.id}/{sha256}",
        "sha256": sha256,
        "size": 1,
        "media_type": "text/plain",
    }
    accepted = make_received_id(doc.tenant, "test", doc.event_id)
    await connection.execute(
        """insert into documents (id, tenant, external_id, title, language, collection, tags,
             metadata, document_date, content_sha256, blob, latest, revision,
             event_id, accepted_id, received_at, readers)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
           on conflict (id) do update set latest = excluded.latest, title = excluded.title,
             revision = excluded.revision, event_id = excluded.event_id,
             content_sha256 = excluded.content_sha256, accepted_id = excluded.accepted_id,
               readers = excluded.readers""",
        *(
            doc.id,
            doc.tenant,
            doc.external_id,
            doc.title,
            doc.language,
            doc.collection,
            list(doc.tags),
            doc.metadata or {},
            doc.document_date,
            sha256,
            blob,
        ),
        *(list(doc.order), doc.revision, doc.event_id, accepted, EPOCH, doc.readers),
    )
    await connection.execute(
        """insert into document_revisions (document_id, ord, revision, tenant, title,
             content_sha256, blob, event_id, source, accepted_id, received_at,
             log_topic, log_partition, log_offset, readers)
           values ($1, $2, $3, $4, $5, $6, $7, $8, 'test', $9, $10, 'accepted', 0, $11, $12)""",
        *(
            doc.id,
            list(doc.order),
            doc.revision,
            doc.tenant,
            doc.title,
            sha256,
            blob,
            doc.event_id,
            accepted,
            EPOCH,
            doc.order[-1],
            doc.readers,
        ),
    )


async def insert_index_rows(
    connection: asyncpg.Connection, doc: SampleDocument, generation: str = "g1"
) -> None:
    key = (generation, doc.id, list(doc.order), doc.tenant)
    markdown = "\n\n".join(doc.texts)
    await connection.execute(
        """insert into revision_texts (generation, document_id, ord, tenant, title, language,
             media_type, content_sha256, text_sha256, characters, markdown,
             warnings, event_id, log_topic, log_partition, log_offset)
           values ($1, $2, $3, $4, $5, $6, 'text/markdown', '', '', $7, $8, '[]', $2, 'ocr_done',
             0, $9)""",
        *key,
        doc.title,
        doc.language,
        len(markdown),
        markdown,
        doc.order[-1],
    )
    start = 0
    for ordinal, text in enumerate(doc.texts):
        end = start + len(text)
        await connection.execute(
            """insert into parent_chunks (generation, document_id, ord, tenant, id, ordinal, text,
                 section, char_start, char_end, pages, tokens)
               values ($1, $2, $3, $4, $5, $6, $7, 'Part', $8, $9, '{1}', 5)""",
            *(*key, doc.parent_id(ordinal), ordinal, text, start, end),
        )
        await connection.execute(
            """insert into child_chunks (generation, document_id, ord, tenant, id, parent_id,
                 ordinal, kind, text, prefix, char_start, char_end, spans, tokens,
                 language, cfg)
               values ($1, $2, $3, $4, $5, $6, $7, 'paragraph', $8, $9, $10, $11, $12, 5, $13,
                 $14)""",
            *(
                *key,
                doc.chunk_id(ordinal),
                doc.parent_id(ordinal),
                ordinal,
                text,
                doc.prefix,
                start,
                end,
            ),
            *(
                [{"char_start": start, "char_end": end}],
                doc.language,
                resolve_text_search_config(doc.language),
            ),
        )
        if doc.vectors is not None:
            await connection.execute(
                "insert into chunk_vectors (generation, document_id, ord, tenant, chunk_id, "
                "embedding) values ($1, $2, $3, $4, $5, $6)",
                *(*key, doc.chunk_id(ordinal), np.array(doc.vectors[ordinal], dtype=np.float16)),
            )
        start = end + 2


async def activate_revision(
    connection: asyncpg.Connection, doc: SampleDocument, generation: str = "g1"
) -> None:
    """Make this revision the visible one, with its share of the lexical statistics, and take the
    earlier one out.
    """
    async with connection.transaction():
        previous_order = await connection.fetchval(
            "select ord from visible where generation = $1 and document_id = $2", generation, doc.id
        )
        if previous_order is not None:
            await _add_lexical_deltas(connection, doc, generation, previous_order, -1)
            for table in ("child_chunks", "parent_chunks", "chunk_vectors"):
                await connection.execute(
                    f"delete from {table} where generation = $1 and document_id = $2 and ord = $3",
                    generation,
                    doc.id,
                    previous_order,
                )
        await connection.execute(
            """insert into visible (generation, document_id, ord, tenant, chunks)
                 values ($1, $2, $3, $4, $5)
               on conflict (generation, document_id)
                 do update set ord = excluded.ord, chunks = excluded.chunks""",
            *(generation, doc.id, list(doc.order), doc.tenant, len(doc.texts)),
        )
        await _add_lexical_deltas(connection, doc, generation, list(doc.order), 1)


async def _add_lexical_deltas(
    connection: asyncpg.Connection,
    doc: SampleDocument,
    generation: str,
    order: Sequence[int],
    sign: int,
) -> None:
    await connection.execute(
        """insert into lexical_deltas (generation, tenant, cfg, lexeme, delta)
           select generation, tenant, cfg, lexeme, $4 * count(*) from child_chunks, unnest(tsv)
             where generation = $1 and document_id = $2 and ord = $3
           group by 1, 2, 3, 4""",
        *(generation, doc.id, order, sign),
    )
    await connection.execute(
        """insert into corpus_deltas (generation, tenant, cfg, chunks)
           select generation, tenant, cfg, $4 * count(*) from child_chunks where generation = $1
             and document_id = $2 and ord = $3 group by 1, 2, 3""",
        *(generation, doc.id, order, sign),
    )


async def insert_mention(
    connection: asyncpg.Connection,
    doc: SampleDocument,
    ordinal: int,
    type_: str,
    key: str,
    name: str | None = None,
    *,
    generation: str = "g1",
) -> UUID:
    entity = content_id("entity", doc.tenant, type_, key)
    n_mentions = await connection.fetchval("select count(*) from entity_mentions")
    await connection.execute(
        """insert into entity_mentions (generation, document_id, ord, tenant, id, chunk_id,
             entity_id, type, key, name, char_start, char_end)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)""",
        *(
            generation,
            doc.id,
            list(doc.order),
            doc.tenant,
            content_id("mention", doc.id, n_mentions),
            doc.chunk_id(ordinal),
            entity,
            type_,
            key,
            name or key,
            *doc.find_span(ordinal, key),
        ),
    )
    return entity


async def insert_claim(
    connection: asyncpg.Connection,
    doc: SampleDocument,
    ordinal: int,
    subject: UUID,
    property_: str,
    value: str,
) -> None:
    await connection.execute(
        """insert into claims (generation, document_id, ord, tenant, id, chunk_id, subject_id,
             property, value, char_start, char_end)
           values ('g1', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)""",
        *(doc.id, list(doc.order), doc.tenant),
        *(content_id("claim", doc.id, ordinal, value), doc.chunk_id(ordinal), subject),
        *(property_, value, *doc.find_span(ordinal, value.lower())),
    )


async def insert_relation(
    connection: asyncpg.Connection,
    doc: SampleDocument,
    ordinal: int,
    subject: UUID,
    object_: UUID,
    weight: float = 1.0,
    *,
    generation: str = "g1",
) -> None:
    await connection.execute(
        """insert into relations (generation, document_id, ord, tenant, id, chunk_id, subject_id,
             type, object_id, weight, extractor, char_start, char_end)
           values ($1, $2, $3, $4, $5, $6, $7, 'knows', $8, $9, 'test', $10, $11)""",
        *(
            generation,
            doc.id,
            list(doc.order),
            doc.tenant,
            content_id("relation", doc.id, ordinal, subject, object_),
            doc.chunk_id(ordinal),
            subject,
            object_,
            weight,
            *doc.find_span(ordinal, doc.texts[ordinal].lower()),
        ),
    )
