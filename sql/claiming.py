"""The first transaction, inside: what was claimed before, what counts, and the rows of what does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from schemas.generations import Generation
from schemas.ports.ledger import Claim, Claimed, Counts, Flip, Projected
from schemas.records import repeats
from sql import acceptance, amending
from sql.claims import ERASED, Handled, Verdict, claim_events, note_another_try, note_flips, note_revived
from sql.decisions import write_decisions
from sql.document_state import States, add_stubs, documents_of, lock_documents, look_at_shown, settles
from sql.flips import share_flips
from sql.index_changes import EVERY_GENERATION, note_change
from sql.keystore import destroyed
from sql.pool import Connection
from sql.visibility import flip_complete, keep_late_texts, withdraw

SHARED = ""
"""The generation of claims that are made once for all generations."""


Before = Mapping[UUID, Handled]
"""Claims that are known to be there. Those that are not known make Collision be raised, and then all begins again."""
WriteRows = Callable[[Connection, str, Sequence[Projected]], Awaitable[None]]


async def claim_shared(connection: Connection, stage: str, counts: Counts, events: Sequence[Projected], before: Before) -> list[Claimed]:
    """At the door, and for decisions: only the claim decides."""
    erased = await _erased(connection, events)
    await note_another_try(connection, SHARED, stage, before)
    fresh = [event for event in _fresh(events, before) if event.fact.id not in erased]
    if fresh:
        await claim_events(connection, SHARED, stage, counts, [Verdict(event, Claim.OWED) for event in fresh])
        await write_decisions(connection, [row for event in fresh for row in event.rows])
    handled = {**before, **{event.fact.id: Handled(Claimed(Claim.OWED), event.fact.payload_sha256, event.fact.position) for event in fresh}}
    return [erased.get(event.fact.id) or _claimed(counts, event, handled[event.fact.id]) for event in events]


async def claim_documents(
    connection: Connection, generation: Generation, stage: str, counts: Counts, events: Sequence[Projected], before: Before, write_rows: WriteRows
) -> list[Claimed]:
    """Under the documents' locks. Raises MissingDocuments or Collision: roll back and begin again."""
    if counts == "visible" and settles(events):
        await share_flips(connection, generation.name)
    if counts == "latest":
        await add_stubs(connection, events)
    states = await lock_documents(connection, generation, counts, events)
    if counts == "latest":
        await look_at_shown(connection, generation.name, states)
        await amending.look_at_sayings(connection, events, states)
    await note_another_try(connection, generation.name, stage, before)
    answers = {identity: handled.claimed for identity, handled in before.items()}
    run = _Run(connection, generation, stage, counts, states, write_rows)
    erased = await _erased(connection, events)
    fresh = [event for event in _fresh(events, before) if event.fact.id not in erased]
    for together in _runs(fresh):
        answers |= await run.claim(together)
    if any(event.rows for event in fresh):
        await note_change(connection, EVERY_GENERATION if counts == "latest" else generation.name, documents_of(fresh).values())
    answers |= erased
    if counts == "latest":
        answers |= await _with_revived(connection, generation.name, stage, answers)
        titles = {event.fact.id: amending.amended_title(states[event.fact.data.document_id]) for event in events}
        answers |= {identity: replace(answers[identity], title=title) for identity, title in titles.items() if title is not None}
    return [answers[event.fact.id] for event in events]


@dataclass(frozen=True, slots=True)
class _Run:
    """Events of which no two speak of different revisions of the same document."""

    connection: Connection
    generation: Generation
    stage: str
    counts: Counts
    states: States
    write_rows: WriteRows

    async def claim(self, events: Sequence[Projected]) -> dict[UUID, Claimed]:
        verdicts = [self._judge(event) for event in events]
        await claim_events(self.connection, self.generation.name, self.stage, self.counts, verdicts)
        flips = await (self._accept(verdicts) if self.counts == "latest" else self._project(verdicts))
        return {identity: replace(verdict.claimed, flip=flips.get(identity)) for verdict in verdicts for identity in (verdict.event.fact.id,)}

    def _judge(self, event: Projected) -> Verdict:
        state = self.states[event.fact.data.document_id]
        if self.counts == "latest":
            return acceptance.judge(event, state, self.generation.how.get("transcribe"))
        return Verdict(event, Claim.SUPERSEDED if state.is_over(tuple(event.fact.data.order)) else Claim.OWED)

    async def _accept(self, verdicts: Sequence[Verdict]) -> dict[UUID, Flip]:
        await acceptance.write(self.connection, verdicts, self.states)
        if removed := acceptance.withdrawals(verdicts):
            rows = await self.connection.fetch("select name from generations where state <> 'dropped' order by name")
            await withdraw(self.connection, [row["name"] for row in rows], removed)
        flips = {verdict.event.fact.id: verdict.flip for verdict in verdicts if verdict.flip}
        await note_flips(self.connection, self.generation.name, self.stage, flips)
        revived = {verdict.event.fact.id: verdict.revived for verdict in verdicts if verdict.revived}
        await note_revived(self.connection, self.generation.name, self.stage, revived)
        return flips

    async def _project(self, verdicts: Sequence[Verdict]) -> dict[UUID, Flip]:
        await self.write_rows(self.connection, self.generation.name, [verdict.event for verdict in verdicts if verdict.claim is Claim.OWED])
        await keep_late_texts(self.connection, [verdict for verdict in verdicts if not self.states[verdict.event.fact.data.document_id].erased])
        return await flip_complete(self.connection, self.generation.name, self.stage, verdicts, self.states)


async def _erased(connection: Connection, events: Sequence[Projected]) -> dict[UUID, Claimed]:
    """Whoever opened an event just before its key was destroyed may come late: of what was erased nothing is written, and nothing is owed. To be asked under the
    documents' locks, which an erasure takes before it removes what there is."""
    keys = {event.fact.id: event.fact.key for event in events if event.fact.key is not None}
    gone = await destroyed(connection, set(keys.values()))
    return {identity: Claimed(Claim.DONE) for identity, key in keys.items() if key in gone}


async def _with_revived(connection: Connection, generation: str, stage: str, answers: Mapping[UUID, Claimed]) -> dict[UUID, Claimed]:
    """Those of late withdrawals, with the revisions that they brought back."""
    late = [identity for identity, claimed in answers.items() if claimed.claim is Claim.SUPERSEDED]
    found = await acceptance.revived(connection, generation, stage, late) if late else {}
    return {identity: replace(answers[identity], revived=row) for identity, row in found.items()}


def _claimed(counts: Counts, event: Projected, handled: Handled) -> Claimed:
    return _at_the_door(event, handled) if counts == "door" else handled.claimed


def _at_the_door(event: Projected, handled: Handled) -> Claimed:
    """What was erased is not let in again, whoever has it read once more."""
    if handled.payload_sha256 == ERASED:
        return Claimed(Claim.DONE)
    if handled.payload_sha256 != event.fact.payload_sha256:
        return Claimed(Claim.DUPLICATE)
    return Claimed(Claim.DONE) if repeats(event.fact.position, handled.place) else handled.claimed


def _fresh(events: Sequence[Projected], handled: Before) -> list[Projected]:
    """Those never claimed, each once."""
    first: dict[UUID, Projected] = {}
    for event in events:
        if event.fact.id not in handled:
            first.setdefault(event.fact.id, event)
    return list(first.values())


def _runs(events: Sequence[Projected]) -> Iterator[list[Projected]]:
    """Cut where a document comes up with another order, so that revisions of one batch follow each other as if they had come alone."""
    run: list[Projected] = []
    orders: dict[UUID, list[int]] = {}
    for event in events:
        data = event.fact.data
        if orders.setdefault(data.document_id, data.order) != data.order:
            yield run
            run, orders = [], {data.document_id: data.order}
        run.append(event)
    if run:
        yield run
