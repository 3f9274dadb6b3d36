"""At transcribe: what amendments say of documents, and what holds of it. Under the documents' locks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from schemas.amendments import FIELDS, Saying, holds, spoken, what_holds
from schemas.ports.ledger import Claim, Flip, Projected
from schemas.rows import AmendmentRow, DocumentRow, WithdrawalRow
from sql import storable
from sql.claims import Verdict
from sql.document_state import DocumentState, States
from sql.pool import Connection
from sql.statements import statement
from sql.storable import array_text


async def look_at_sayings(connection: Connection, events: Sequence[Projected], states: States) -> None:
    """Of documents that have amendments, or are to have one: `sayings` of all others stays None."""
    rows = await connection.fetch(statement("amendments"), list(states))
    amended = {row["document_id"] for row in rows} | {row.document_id for event in events for row in event.rows if isinstance(row, AmendmentRow)}
    if not amended:
        return
    for document in amended:
        states[document].sayings = []
    for row in rows:
        _note(states[row["document_id"]], Saying(tuple(row["ord"]), row["accepted_id"], row["said"], row["by_revision"]))
    for row in await connection.fetch(statement("revision_fields"), list(amended)):
        _note(states[row["document_id"]], Saying(tuple(row["ord"]), row["accepted_id"], spoken(row["fields"]), True))


def judge(event: Projected, row: AmendmentRow, state: DocumentState) -> Verdict:
    """Superseded where all that it speaks of was spoken of later, or the document was withdrawn since."""
    if state.withdrawn is not None and row.order < state.withdrawn:
        return Verdict(event, Claim.SUPERSEDED, written=False)
    saying = Saying(row.order, row.accepted_id, row.said, False)
    _note(state, saying)
    flip = Flip(row.document_id, state.visible, state.chunks, None) if state.visible else None
    return Verdict(event, Claim.OWED if holds(saying, _living(state)) else Claim.SUPERSEDED, flip)


def note_revision(row: DocumentRow, state: DocumentState) -> None:
    _note(state, Saying(row.order, row.accepted_id, _spoken(row), True))


async def write(connection: Connection, verdicts: Sequence[Verdict], states: States) -> None:
    """After the revisions and withdrawals of the run."""
    rows = [(verdict, row) for verdict in verdicts for row in verdict.event.rows]
    said = [_amendment(verdict, row) for verdict, row in rows if isinstance(row, AmendmentRow) and verdict.written]
    said += [_late(verdict, row) for verdict, row in rows if isinstance(row, DocumentRow) and _is_late(verdict, row, states[row.document_id])]
    if said:
        await connection.executemany(statement("add_amendment"), said)
    if gone := {row.document_id: row.order for verdict, row in rows if isinstance(row, WithdrawalRow) and verdict.written}:
        await connection.execute(statement("forget_amendments"), list(gone), [array_text(order) for order in gone.values()])
    spoken_of = dict.fromkeys(verdict.event.fact.data.document_id for verdict in verdicts)
    held = [(document, found) for document in spoken_of if (found := what_holds(_living(states[document]))) is not None and states[document].sayings]
    if held:
        await connection.executemany(
            statement("amend_document"),
            [
                (
                    *(document, storable.text(found.title), storable.text(found.collection), list(map(storable.text, found.tags))),
                    *(found.metadata, found.amended, found.readers),
                )
                for document, found in held
            ],
        )


def amended_title(state: DocumentState) -> str | None:
    found = what_holds(_living(state))
    return found.title if found is not None and "title" in found.amended else None


def _note(state: DocumentState, saying: Saying) -> None:
    if state.sayings is not None and all((saying.order, saying.identity) != (other.order, other.identity) for other in state.sayings):
        state.sayings.append(saying)


def _living(state: DocumentState) -> list[Saying]:
    """A withdrawal ends what was said before it; what the tombstone is called by, the last revision said."""
    return [saying for saying in state.sayings or () if saying.by_revision or state.withdrawn is None or saying.order > state.withdrawn]


def _is_late(verdict: Verdict, row: DocumentRow, state: DocumentState) -> bool:
    """A revision that a later one has overtaken still ends what was said before it."""
    over = state.withdrawn is not None and row.order < state.withdrawn
    return verdict.claim is Claim.SUPERSEDED and not over and bool(_spoken(row))


def _spoken(row: DocumentRow) -> dict[str, Any]:
    return spoken({name: getattr(row, name) for name in FIELDS})


def _amendment(verdict: Verdict, row: AmendmentRow) -> tuple[Any, ...]:
    return _values(verdict, row.document_id, row, row.said, by_revision=False)


def _late(verdict: Verdict, row: DocumentRow) -> tuple[Any, ...]:
    return _values(verdict, row.document_id, row, _spoken(row), by_revision=True)


def _values(verdict: Verdict, document: UUID, row: AmendmentRow | DocumentRow, said: dict[str, Any], *, by_revision: bool) -> tuple[Any, ...]:
    position = verdict.event.fact.position
    assert position is not None
    return (document, row.order, row.accepted_id, row.tenant, said, by_revision, row.received_at, position.topic, position.partition, position.offset)
