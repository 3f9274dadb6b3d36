"""Format lineage as PROV-JSON (W3C member submission of 24 April 2013)."""

from __future__ import annotations

from typing import Any

from schemas.lineage import CitationLineage, DocumentLineage, Hop, RunLineage

ProvDocument = dict[str, dict[str, Any]]
PREFIXES = {
    "anabranch": "urn:anabranch:",
    "run": "urn:anabranch:run:",
    "event": "urn:uuid:",
    "doc": "urn:anabranch:document:",
    "sha256": "urn:sha256:",
}


class ProvBuilder:
    """Collect PROV records, each once by its id."""

    def __init__(self) -> None:
        self._records: ProvDocument = {"prefix": dict(PREFIXES)}

    def add_record(self, kind: str, record_id: str, **attributes: Any) -> str:
        """Add a record and return its id.

        Attributes are named `prefix_name`; those without a value are left out. Types become
        qualified names, other values plain literals.
        """
        literals = {
            name.replace("_", ":", 1): (
                {"$": value, "type": "prov:QUALIFIED_NAME"} if name == "prov_type" else value
            )
            for name, value in attributes.items()
            if value is not None
        }
        # Citations share documents and events: a repeated record only adds attributes.
        self._records.setdefault(kind, {}).setdefault(record_id, {}).update(literals)
        return record_id

    def add_relation(self, kind: str, **ends: str) -> None:
        # Ids follow from the ends, so a repeated relation replaces itself.
        relation_id = f"_:{kind}-{'-'.join(_format_local_name(end) for end in ends.values())}"
        self._records.setdefault(kind, {})[relation_id] = {
            f"prov:{name}": end for name, end in ends.items()
        }

    def build(self) -> ProvDocument:
        return self._records


def build_run_prov(lineage: RunLineage) -> ProvDocument:
    """Describe the answer, its quotes, the chunks, each event, and the bytes.

    Stages are activities; their authors are agents.
    """
    prov = ProvBuilder()
    answer = prov.add_record(
        "entity",
        f"run:{lineage.run_id}-answer",
        prov_type="anabranch:Answer",
        prov_value=lineage.answer,
        anabranch_verified=_format_verified(lineage.verified),
    )
    question_activity = prov.add_record(
        "activity",
        f"run:{lineage.run_id}",
        prov_type="anabranch:Question",
        anabranch_generation=lineage.generation,
    )
    prov.add_relation("wasGeneratedBy", entity=answer, activity=question_activity)
    for citation in lineage.citations:
        _add_citation(prov, lineage, citation, answer, question_activity)
    return prov.build()


def build_document_prov(lineage: DocumentLineage) -> ProvDocument:
    prov = ProvBuilder()
    revision = _add_revision(
        prov, str(lineage.document_id), lineage.revision, lineage.title, lineage.external_id
    )
    prov.add_record("entity", revision, anabranch_verified=_format_verified(lineage.verified))
    content = _add_content(prov, lineage.content_sha256)
    prov.add_relation("wasDerivedFrom", generatedEntity=revision, usedEntity=content)
    _add_events(prov, lineage.hops, content)
    return prov.build()


def _add_citation(
    prov: ProvBuilder,
    run: RunLineage,
    citation: CitationLineage,
    answer: str,
    question_activity: str,
) -> None:
    quote = prov.add_record(
        "entity",
        f"run:{run.run_id}-citation-{citation.n}",
        prov_type="anabranch:Citation",
        prov_value=citation.quote,
        anabranch_verified=_format_verified(citation.verified),
    )
    chunk = prov.add_record(
        "entity",
        f"anabranch:chunk-{citation.chunk_id}",
        prov_type="anabranch:Chunk",
        anabranch_char_start=citation.char_start,
        anabranch_char_end=citation.char_end,
        anabranch_page=citation.pages[0] if citation.pages else None,
    )
    revision = _add_revision(
        prov, str(citation.document_id), citation.revision, citation.title, citation.external_id
    )
    prov.add_relation("wasDerivedFrom", generatedEntity=answer, usedEntity=quote)
    prov.add_relation("wasDerivedFrom", generatedEntity=quote, usedEntity=chunk)
    prov.add_relation("wasDerivedFrom", generatedEntity=chunk, usedEntity=revision)
    prov.add_relation("used", activity=question_activity, entity=chunk)
    content = _add_content(prov, citation.content_sha256) if citation.content_sha256 else None
    for hop in citation.hops:
        if hop.name == "chunked" and hop.event:
            prov.add_relation(
                "wasDerivedFrom", generatedEntity=chunk, usedEntity=f"event:{hop.event.id}"
            )
    _add_events(prov, citation.hops, content)
    if content:
        prov.add_relation("wasDerivedFrom", generatedEntity=revision, usedEntity=content)


def _add_events(prov: ProvBuilder, hops: list[Hop], content: str | None) -> None:
    event_ids = {hop.event.id for hop in hops if hop.event}
    for hop in hops:
        if (event := hop.event) is None:
            continue
        entity = prov.add_record(
            "entity",
            f"event:{event.id}",
            prov_type="anabranch:Event",
            anabranch_type=event.type,
            anabranch_topic=event.topic,
            anabranch_partition=event.partition,
            anabranch_offset=event.offset,
            anabranch_how=event.how,
            anabranch_verified=_format_verified(hop.verified),
        )
        stage = prov.add_record(
            "activity",
            f"anabranch:making-{event.id}",
            prov_type="anabranch:Stage",
            prov_label=event.author,
        )
        prov.add_record(
            "activity", stage, **({"prov_endTime": event.time.isoformat()} if event.time else {})
        )
        agent = prov.add_record(
            "agent",
            f"anabranch:{_format_local_name(event.author)}",
            prov_type="prov:SoftwareAgent",
            prov_label=event.author,
        )
        prov.add_relation("wasGeneratedBy", entity=entity, activity=stage)
        prov.add_relation("wasAssociatedWith", activity=stage, agent=agent)
        prov.add_relation("wasAttributedTo", entity=entity, agent=agent)
        if event.cause in event_ids:
            prov.add_relation("used", activity=stage, entity=f"event:{event.cause}")
            prov.add_relation(
                "wasDerivedFrom", generatedEntity=entity, usedEntity=f"event:{event.cause}"
            )
        if hop.name == "accepted" and content:
            prov.add_relation("wasDerivedFrom", generatedEntity=entity, usedEntity=content)


def _add_revision(
    prov: ProvBuilder, document_id: str, revision: int, title: str | None, external_id: str | None
) -> str:
    document_entity = prov.add_record(
        "entity",
        f"doc:{document_id}",
        prov_type="anabranch:Document",
        prov_label=title,
        anabranch_externalId=external_id,
    )
    revision_entity = prov.add_record(
        "entity",
        f"doc:{document_id}-revision-{revision}",
        prov_type="anabranch:Revision",
        anabranch_revision=revision,
    )
    prov.add_relation(
        "specializationOf", specificEntity=revision_entity, generalEntity=document_entity
    )
    return revision_entity


def _add_content(prov: ProvBuilder, sha256: str) -> str:
    return prov.add_record("entity", f"sha256:{sha256}", prov_type="anabranch:Bytes")


def _format_verified(verified: bool | None) -> str:
    return str(verified).lower()


def _format_local_name(name: str) -> str:
    """Return the name with only characters that the local part of a qualified name may have."""
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)
