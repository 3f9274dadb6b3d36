"""Project names, relations and claims into the graph. They are searchable once their revision is
visible.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.events import EntitiesExtracted, Event
from schemas.ids import content_id
from schemas.ports.ledger import OrderingPolicy
from schemas.rows import ClaimRow, MentionRow, PartCompletedRow, RelationRow, Row
from schemas.topics import ENTITIES
from streams.stage import Stage

VERSION = 1


def project(event: Event[EntitiesExtracted]) -> Iterable[Row]:
    data = event.data
    revision = data.document_id, tuple(data.order), data.tenant
    for mention in data.mentions:
        yield MentionRow(
            *revision,
            # Ids derive from the content, so a part that is delivered again has the same rows.
            content_id("mention", mention.chunk_id, mention.type, mention.key, mention.char_start),
            **mention.model_dump(),
        )
    for relation in data.relations:
        (subject_type, subject_key), (object_type, object_key) = relation.subject, relation.object
        yield RelationRow(
            *revision,
            content_id(
                "relation",
                relation.chunk_id,
                *relation.subject,
                relation.type,
                *relation.object,
                relation.char_start,
            ),
            subject_type=subject_type,
            subject_key=subject_key,
            object_type=object_type,
            object_key=object_key,
            **relation.model_dump(exclude={"subject", "object"}),
        )
    for claim in data.claims:
        subject_type, subject_key = claim.subject
        yield ClaimRow(
            *revision,
            content_id(
                "claim",
                claim.chunk_id,
                *claim.subject,
                claim.property,
                claim.value,
                claim.char_start,
            ),
            subject_type=subject_type,
            subject_key=subject_key,
            **claim.model_dump(exclude={"subject"}),
        )
    # Entities do not delay visibility: chunks and vectors alone complete a revision.
    yield PartCompletedRow(*revision, "entities", data.part, data.parts)


STAGE = Stage(
    "graph",
    ENTITIES,
    VERSION,
    ordering_policy=OrderingPolicy.VISIBLE,
    project=project,
    fails_document=False,
)
