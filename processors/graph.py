"""Project names, relations and claims into the graph. They are searchable once their revision is
visible.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import EntitiesExtracted, Event
from schemas.ids import content_id
from schemas.rows import ClaimRow, MentionRow, PartCompletedRow, RelationRow, Row
from schemas.topics import ENTITIES
from streams.stage import Stage

VERSION = 1


def project(event: Event[EntitiesExtracted]) -> Iterable[Row]:
    data = event.data
    document_id, order, tenant = data.document_id, tuple(data.order), data.tenant
    for mention in data.mentions:
        yield MentionRow(
            id=content_id(
                "mention", mention.chunk_id, mention.type, mention.key, mention.char_start
            ),
            document_id=document_id,
            order=order,
            tenant=tenant,
            chunk_id=mention.chunk_id,
            type=mention.type,
            key=mention.key,
            name=mention.name,
            char_start=mention.char_start,
            char_end=mention.char_end,
        )
    for relation in data.relations:
        subject_type, subject_key = relation.subject
        object_type, object_key = relation.object
        yield RelationRow(
            id=content_id(
                "relation",
                relation.chunk_id,
                *relation.subject,
                relation.type,
                *relation.object,
                relation.char_start,
            ),
            document_id=document_id,
            order=order,
            tenant=tenant,
            chunk_id=relation.chunk_id,
            subject_type=subject_type,
            subject_key=subject_key,
            type=relation.type,
            object_type=object_type,
            object_key=object_key,
            weight=relation.weight,
            extractor=relation.extractor,
            char_start=relation.char_start,
            char_end=relation.char_end,
        )
    for claim in data.claims:
        subject_type, subject_key = claim.subject
        yield ClaimRow(
            id=content_id(
                "claim",
                claim.chunk_id,
                *claim.subject,
                claim.property,
                claim.value,
                claim.char_start,
            ),
            document_id=document_id,
            order=order,
            tenant=tenant,
            chunk_id=claim.chunk_id,
            subject_type=subject_type,
            subject_key=subject_key,
            property=claim.property,
            value=claim.value,
            char_start=claim.char_start,
            char_end=claim.char_end,
        )
    yield PartCompletedRow(document_id, order, tenant, "entities", data.part, data.parts)


STAGE = Stage(
    "graph", ENTITIES, VERSION, ordering_policy="visible", project=project, fails_document=False
)
