"""Chunks to names, relations and claims. Projects nothing: its topic is projected by `embed`, its facts by `graph`."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.events import DocumentChunked, EntitiesExtracted, Fact
from schemas.ids import canonical_json
from schemas.ports.bundle import Ports
from schemas.ports.ledger import Claim, MemoKey
from schemas.values import Extraction
from streams.memo import memo_key, remembered
from streams.stage import Counted, Stage, Statement
from streams.topics import CHUNKED, ENTITIES

VERSION = 1


async def react(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    return [await _extracted(item.fact, ports) for item in counted if item.claim is not Claim.SUPERSEDED]


def question_key(data: DocumentChunked, engine: str) -> MemoKey:
    """What an extractor of this fingerprint is asked about one part of a document's chunks."""
    question = canonical_json({"language": data.language, "parents": [parent.model_dump(mode="json") for parent in data.parents]})
    return memo_key(data.tenant, data.document_id, engine, question)


async def _extracted(fact: Fact[DocumentChunked], ports: Ports) -> Statement:
    data = fact.data

    async def ask(_: list[int]) -> list[bytes]:
        return [(await ports.extractor.extract(data.parents, data.language)).model_dump_json().encode()]

    key = question_key(data, ports.extractor.fingerprint)
    found = Extraction.model_validate_json((await remembered(ports.memo, [key], ask))[0])
    event = EntitiesExtracted(
        tenant=data.tenant,
        document_id=data.document_id,
        order=data.order,
        origin=data.origin,
        part=data.part,
        parts=data.parts,
        mentions=found.mentions,
        relations=found.relations,
        claims=found.claims,
    )
    return Statement(fact, event, ordinal=1)


STAGE = Stage("extract", CHUNKED, VERSION, counts="visible", react=react, batch=8, essential=False, output=ENTITIES)
