"""From what a row has come to, to what `raw` is told of it: the declared mapping, and what was told before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import MalformedEvent
from schemas.ids import canonical_json, fingerprint
from schemas.sources import GIVEN_UP, Left, Mark, RowMapping, Said, SourceSpec
from streams.sources.columns import as_text
from streams.sources.envelope import row_key
from streams.sources.fold import Absent, Outcome, Present

METADATA_BYTES = 500_000
"""An event has at most 900,000."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A document as a source has it. `text`, or `base64` for the bytes of a file."""

    external_id: str
    text: str | None = None
    base64: str | None = None
    title: str | None = None
    language: str | None = None
    filename: str | None = None
    metadata: Mapping[str, Any] | None = None


def draft(key: str, columns: Mapping[str, Any], mapping: RowMapping) -> Draft:
    """Raises MalformedEvent where the columns of the id are empty, and for what no event takes."""
    external_id = row_key({name: columns[name] for name in mapping.id}) if mapping.id else key
    text, base64 = _body(columns, mapping)
    language = as_text(columns[mapping.language]) if mapping.language else ""
    metadata = {name: columns[name] for name in mapping.metadata if columns[name] is not None}
    if (size := len(canonical_json(metadata))) > METADATA_BYTES:
        raise MalformedEvent(
            f"the metadata of {external_id!r} has {size:,} bytes; {METADATA_BYTES:,} are allowed",
            code="MALFORMED_CHANGE",
            remedy="Name fewer columns as metadata, or make a large one part of the body.",
        )
    return Draft(
        external_id=external_id,
        text=text,
        base64=base64,
        title=_short(columns, mapping.title, 2000),
        language=language if len(language) <= 35 and language else None,
        filename=_short(columns, mapping.filename, 1024),
        metadata=metadata,
    )


def _body(columns: Mapping[str, Any], mapping: RowMapping) -> tuple[str | None, str | None]:
    values = [columns[name] for name in mapping.body]
    files = [value for value in values if isinstance(value, Mapping) and set(value) == {"base64"}]
    if files and len(values) > 1:
        raise MalformedEvent("a body of bytes stands alone", code="MALFORMED_CHANGE", remedy="Name one column of bytes as the body, or only columns of text.")
    if files:
        return None, str(files[0]["base64"])
    return "\n\n".join(text for text in map(as_text, values) if text), None


def _short(columns: Mapping[str, Any], name: str | None, longest: int) -> str | None:
    return as_text(columns[name])[:longest] or None if name else None


def next_said(key: str, found: Outcome | None, before: Said | None, spec: SourceSpec, mapping: RowMapping) -> Said | None:
    """What is to be said of a row now, or None where nothing new is. Raises MalformedEvent."""
    match found:
        case Present():
            return _present(draft(key, found.columns, mapping), found, before, spec)
        case Absent() if before is not None and before.live and found.mark >= before.mark:
            return _after(before, found.table, found.mark, _digest("gone"), before.external_id, live=False)
    return None


def _present(document: Draft, found: Present, before: Said | None, spec: SourceSpec) -> Said | None:
    if not (document.text or document.base64):
        # A row without text is no document (yet): what it was is withdrawn.
        live_before = before is not None and before.live and found.mark >= before.mark
        return _after(before, found.table, found.mark, _digest("empty"), before.external_id, live=False) if before and live_before else None
    digest = _digest("document", document, spec)
    if before is not None and found.mark < before.mark:
        return None
    same = before is not None and before.live and before.digest == digest and before.epoch == found.mark[0]
    return None if same else _after(before, found.table, found.mark, digest, document.external_id, live=True)


def _digest(kind: str, document: Draft | None = None, spec: SourceSpec | None = None) -> str:
    if document is None or spec is None:
        return fingerprint(kind)
    fields = {name: getattr(document, name) for name in Draft.__slots__}
    return fingerprint(kind, fields, spec.tenant, spec.collection, spec.tags)


def _after(before: Said | None, table: str, mark: Mark, digest: str, external_id: str, *, live: bool) -> Said:
    """The next thing to say: a correction where the number is that of before."""
    step = before.step + 1 if before is not None and before.mark == mark else 0
    said = Said(table, *mark, step, digest, external_id, live)
    return said if before is None else replace(said, left=_left(before, said))


def _left(before: Said, said: Said) -> tuple[Left, ...]:
    given_up = {left.external_id: left for left in before.left} if before.owed else {}
    if before.live:
        given_up[before.external_id] = Left(before.external_id, before.mark, said.step if said.mark == before.mark else GIVEN_UP)
    return tuple(left for name, left in given_up.items() if not (said.live and name == said.external_id))
