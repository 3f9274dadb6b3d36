"""Project names, relations and claims into the graph. They are searchable once their revision is visible."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import EntitiesExtracted, Event
from schemas.ids import content_id
from schemas.rows import ClaimRow, MentionRow, PartCompletedRow, RelationRow, Row
from streams.stage import Stage
from streams.topics import ENTITIES

VERSION = 1


def project(event: Event[EntitiesExtracted]) -> Iterable[Row]:
    data, document_id, order, tenant = event.data, event.data.document_id, tuple(event.data.order), event.data.tenant
    for mention in data.mentions:
        row_id = content_id("mention", mention.chunk_id, mention.type, mention.key, mention.char_start)
        yield MentionRow(row_id, document_id, order, tenant, mention.chunk_id, mention.type, mention.key, mention.name, mention.char_start, mention.char_end)
    for relation in data.relations:
        yield RelationRow(
            content_id("relation", relation.chunk_id, *relation.subject, relation.type, *relation.object, relation.char_start),
            document_id,
            order,
            tenant,
            relation.chunk_id,
            *relation.subject,
            relation.type,
            *relation.object,
            relation.weight,
            relation.extractor,
            relation.char_start,
            relation.char_end,
        )
    for claim in data.claims:
        row_id = content_id("claim", claim.chunk_id, *claim.subject, claim.property, claim.value, claim.char_start)
        yield ClaimRow(row_id, document_id, order, tenant, claim.chunk_id, *claim.subject, claim.property, claim.value, claim.char_start, claim.char_end)
    yield PartCompletedRow(document_id, order, tenant, "entities", data.part, data.parts)


STAGE = Stage("graph", ENTITIES, VERSION, ordering_policy="visible", project=project, fails_document=False)
