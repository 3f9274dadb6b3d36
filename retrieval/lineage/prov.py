"""Lineage as PROV-JSON (W3C member submission of 24 April 2013), the JSON serialisation of the PROV data model."""

from __future__ import annotations

from typing import Any

from schemas.lineage import CitationLineage, DocumentLineage, Hop, RunLineage

Document = dict[str, dict[str, Any]]
PREFIXES = {"anabranch": "urn:anabranch:", "run": "urn:anabranch:run:", "event": "urn:uuid:", "doc": "urn:anabranch:document:", "sha256": "urn:sha256:"}


class Prov:
    """Collects records; each once, whoever names it."""

    def __init__(self) -> None:
        self._records: Document = {"prefix": dict(PREFIXES)}

    def add(self, kind: str, identity: str, **attributes: Any) -> str:
        """Returns the identity. Attributes are named `prefix_name`; those without a value are left out."""
        given = {name.replace("_", ":", 1): _literal(name, value) for name, value in attributes.items() if value is not None}
        self._records.setdefault(kind, {}).setdefault(identity, {}).update(given)
        return identity

    def relate(self, kind: str, **ends: str) -> None:
        identity = f"_:{kind}-{'-'.join(_plain(end) for end in ends.values())}"
        self._records.setdefault(kind, {})[identity] = {f"prov:{name}": end for name, end in ends.items()}

    def document(self) -> Document:
        return self._records


def run_prov(lineage: RunLineage) -> Document:
    """The answer, what it quotes, the chunks, each event, and the bytes; stages are activities, their authors agents."""
    prov = Prov()
    answer = prov.add(
        "entity", f"run:{lineage.run_id}-answer", prov_type="anabranch:Answer", prov_value=lineage.answer, anabranch_verified=_said(lineage.verified)
    )
    asking = prov.add("activity", f"run:{lineage.run_id}", prov_type="anabranch:Question", anabranch_generation=lineage.generation)
    prov.relate("wasGeneratedBy", entity=answer, activity=asking)
    for citation in lineage.citations:
        _cite(prov, lineage, citation, answer, asking)
    return prov.document()


def document_prov(lineage: DocumentLineage) -> Document:
    prov = Prov()
    revision = _revision(prov, str(lineage.document_id), lineage.revision, lineage.title, lineage.external_id)
    prov.add("entity", revision, anabranch_verified=_said(lineage.verified))
    content = _content(prov, lineage.content_sha256)
    prov.relate("wasDerivedFrom", generatedEntity=revision, usedEntity=content)
    _events(prov, lineage.hops, content)
    return prov.document()


def _cite(prov: Prov, run: RunLineage, citation: CitationLineage, answer: str, asking: str) -> None:
    quote = prov.add(
        "entity", f"run:{run.run_id}-citation-{citation.n}", prov_type="anabranch:Citation", prov_value=citation.quote,
        anabranch_verified=_said(citation.verified),
    )  # fmt: skip
    chunk = prov.add(
        "entity", f"anabranch:chunk-{citation.chunk_id}", prov_type="anabranch:Chunk", anabranch_char_start=citation.char_start,
        anabranch_char_end=citation.char_end, anabranch_page=citation.pages[0] if citation.pages else None,
    )  # fmt: skip
    revision = _revision(prov, str(citation.document_id), citation.revision, citation.title, citation.external_id)
    prov.relate("wasDerivedFrom", generatedEntity=answer, usedEntity=quote)
    prov.relate("wasDerivedFrom", generatedEntity=quote, usedEntity=chunk)
    prov.relate("wasDerivedFrom", generatedEntity=chunk, usedEntity=revision)
    prov.relate("used", activity=asking, entity=chunk)
    content = _content(prov, citation.content_sha256) if citation.content_sha256 else None
    for hop in citation.hops:
        if hop.name == "chunked" and hop.event:
            prov.relate("wasDerivedFrom", generatedEntity=chunk, usedEntity=f"event:{hop.event.id}")
    _events(prov, citation.hops, content)
    if content:
        prov.relate("wasDerivedFrom", generatedEntity=revision, usedEntity=content)


def _events(prov: Prov, hops: list[Hop], content: str | None) -> None:
    known = {hop.event.id for hop in hops if hop.event}
    for hop in hops:
        if (event := hop.event) is None:
            continue
        entity = prov.add(
            "entity", f"event:{event.id}", prov_type="anabranch:Event", anabranch_type=event.type, anabranch_topic=event.topic,
            anabranch_partition=event.partition, anabranch_offset=event.offset, anabranch_how=event.how, anabranch_verified=_said(hop.verified),
        )  # fmt: skip
        stage = prov.add("activity", f"anabranch:making-{event.id}", prov_type="anabranch:Stage", prov_label=event.author)
        prov.add("activity", stage, **({"prov_endTime": event.time.isoformat()} if event.time else {}))
        agent = prov.add("agent", f"anabranch:{_plain(event.author)}", prov_type="prov:SoftwareAgent", prov_label=event.author)
        prov.relate("wasGeneratedBy", entity=entity, activity=stage)
        prov.relate("wasAssociatedWith", activity=stage, agent=agent)
        prov.relate("wasAttributedTo", entity=entity, agent=agent)
        if event.cause in known:
            prov.relate("used", activity=stage, entity=f"event:{event.cause}")
            prov.relate("wasDerivedFrom", generatedEntity=entity, usedEntity=f"event:{event.cause}")
        if hop.name == "accepted" and content:
            prov.relate("wasDerivedFrom", generatedEntity=entity, usedEntity=content)


def _revision(prov: Prov, document_id: str, revision: int, title: str | None, external_id: str | None) -> str:
    whole = prov.add("entity", f"doc:{document_id}", prov_type="anabranch:Document", prov_label=title, anabranch_externalId=external_id)
    identity = prov.add("entity", f"doc:{document_id}-revision-{revision}", prov_type="anabranch:Revision", anabranch_revision=revision)
    prov.relate("specializationOf", specificEntity=identity, generalEntity=whole)
    return identity


def _content(prov: Prov, sha256: str) -> str:
    return prov.add("entity", f"sha256:{sha256}", prov_type="anabranch:Bytes")


def _literal(name: str, value: Any) -> Any:
    """Types are qualified names; the rest is what it is, whatever a title looks like."""
    return {"$": value, "type": "prov:QUALIFIED_NAME"} if name == "prov_type" else value


def _said(verified: bool | None) -> str:
    return str(verified).lower()


def _plain(name: str) -> str:
    """As a local part of a qualified name."""
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in name)
