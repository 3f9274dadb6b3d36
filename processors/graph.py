"""Names, relations and claims into the graph. They count as soon as their revision is visible."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import EntitiesExtracted, Fact
from schemas.ids import content_id
from schemas.rows import ClaimRow, MentionRow, RelationRow, Row, SettledRow
from streams.stage import Stage
from streams.topics import ENTITIES

VERSION = 1


def project(fact: Fact[EntitiesExtracted]) -> Iterable[Row]:
    data, document, order, tenant = fact.data, fact.data.document_id, tuple(fact.data.order), fact.data.tenant
    for mention in data.mentions:
        identity = content_id("mention", mention.chunk_id, mention.type, mention.key, mention.char_start)
        yield MentionRow(identity, document, order, tenant, mention.chunk_id, mention.type, mention.key, mention.name, mention.char_start, mention.char_end)
    for relation in data.relations:
        yield RelationRow(
            content_id("relation", relation.chunk_id, *relation.subject, relation.type, *relation.object, relation.char_start),
            document,
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
        identity = content_id("claim", claim.chunk_id, *claim.subject, claim.property, claim.value, claim.char_start)
        yield ClaimRow(identity, document, order, tenant, claim.chunk_id, *claim.subject, claim.property, claim.value, claim.char_start, claim.char_end)
    yield SettledRow(document, order, tenant, "entities", data.part, data.parts)


STAGE = Stage("graph", ENTITIES, VERSION, counts="visible", project=project, essential=False)
