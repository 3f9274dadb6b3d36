"""The ledger and the memo in memory: for tests of stages and of the runtime, held to the same promises as the tables by the same suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any
from uuid import UUID

from schemas.amendments import FIELDS, Amended, Saying, holds, spoken, what_holds
from schemas.events import EventBuried, Fact
from schemas.generations import Generation
from schemas.ports.ledger import NOTED_BY_CLAIMS, Claim, Claimed, Counts, Flip, MemoKey, Projected
from schemas.records import Position, repeats
from schemas.rows import AmendmentRow, ChildRow, DocumentRow, OrderKey, Row, SettledRow, TextRow, WithdrawalRow


@dataclass(slots=True)
class _Document:
    latest: OrderKey | None = None
    withdrawn: OrderKey | None = None
    revisions: list[tuple[DocumentRow, bool]] = field(default_factory=list)
    """Accepted, in order, each with whether it was forced."""
    sayings: list[Saying] = field(default_factory=list)
    """Of amendments, and of all revisions."""


@dataclass(slots=True)
class _Handled:
    answer: Claimed
    payload_sha256: str
    place: Position | None
    reacted: bool = False
    begun: int = 1


@dataclass(slots=True)
class MemoryLedger:
    """Everything that the tables would hold, as dictionaries."""

    generation: Generation
    documents: dict[UUID, _Document] = field(default_factory=dict)
    handled: dict[tuple[str, UUID], _Handled] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    visible: dict[UUID, Flip] = field(default_factory=dict)
    buried: dict[tuple[str, UUID], EventBuried] = field(default_factory=dict)
    how: dict[tuple[UUID, OrderKey], str | None] = field(default_factory=dict)

    async def claim(self, stage: str, counts: Counts, events: Sequence[Projected]) -> list[Claimed]:
        return [self._claim(stage, counts, event) for event in events]

    async def begin(self, stage: str, events: Sequence[UUID]) -> None:
        for identity in events:
            self.handled[stage, identity].begun += 1

    async def release(self, stage: str, events: Sequence[UUID]) -> None:
        for identity in events:
            self.handled[stage, identity].begun = max(0, self.handled[stage, identity].begun - 1)

    async def settle(self, stage: str, reacted: Sequence[UUID], buried: Sequence[EventBuried]) -> None:
        for identity in (*reacted, *(event.event_id for event in buried)):
            if (stage, identity) in self.handled:
                self.handled[stage, identity].reacted = True
        self.buried |= {(stage, event.event_id): event for event in buried}

    async def prune(self, stage: str, topic: str, partition: int, below: int) -> None:
        """Nothing to gain in memory."""

    def _claim(self, stage: str, counts: Counts, event: Projected) -> Claimed:
        fact = event.fact
        before = self.handled.get((stage, fact.id))
        if before is not None:
            if counts == "door" and before.payload_sha256 != fact.payload_sha256:
                return Claimed(Claim.DUPLICATE)
            if counts == "door" and repeats(fact.position, before.place):
                return Claimed(Claim.DONE)
            if before.reacted:
                return replace(before.answer, claim=Claim.DONE, revived=None)
            lost = before.begun
            before.begun += lost < NOTED_BY_CLAIMS
            return replace(before.answer, lost=lost)
        answer = self._judge(counts, event)
        self.handled[stage, fact.id] = _Handled(answer, fact.payload_sha256, fact.position)
        return answer

    def _judge(self, counts: Counts, event: Projected) -> Claimed:
        if counts in ("always", "door"):
            self._write(event.rows)
            return Claimed(Claim.OWED)
        document, order = event.fact.data.document_id, tuple(event.fact.data.order)
        state = self.documents.setdefault(document, _Document())
        if counts == "latest":
            return self._accept(state, event, order)
        if self._older(order, state.withdrawn) or self._older(order, self._visible_order(document)):
            return Claimed(Claim.SUPERSEDED)
        self._write(event.rows)
        self._note_how(event)
        return Claimed(Claim.OWED, self._complete(document, order, event.rows))

    def _accept(self, state: _Document, event: Projected, order: OrderKey) -> Claimed:
        row = event.rows[0]
        if isinstance(row, AmendmentRow):
            return self._amend(state, row)
        newest = self._later(order, state.latest) and self._later(order, state.withdrawn)
        if isinstance(row, WithdrawalRow) and self._later(order, state.withdrawn):
            revived = self._lives_on(state, row)
            gone = self._withdraw(state, row)
            return Claimed(Claim.OWED, gone) if newest else Claimed(Claim.SUPERSEDED, revived=revived)
        assert isinstance(row, DocumentRow | WithdrawalRow)
        if isinstance(row, DocumentRow):
            state.sayings.append(Saying(order, row.accepted_id, spoken({name: getattr(row, name) for name in FIELDS}), True))
        if not newest:
            return Claimed(Claim.SUPERSEDED)
        assert isinstance(row, DocumentRow)
        unchanged = self._unchanged(state, row, event.fact)
        state.latest = order
        state.revisions.append((row, event.fact.data.force))
        title = self._title(row.document_id)
        return Claimed(Claim.OWED, self.visible[row.document_id] if unchanged else None, unchanged, title=title)

    def _amend(self, state: _Document, row: AmendmentRow) -> Claimed:
        if self._older(row.order, state.withdrawn):
            return Claimed(Claim.SUPERSEDED)
        saying = Saying(row.order, row.accepted_id, row.said, False)
        state.sayings.append(saying)
        claim = Claim.OWED if holds(saying, self._living(state)) else Claim.SUPERSEDED
        return Claimed(claim, self.visible.get(row.document_id), title=self._title(row.document_id))

    def amended(self, document: UUID) -> Amended | None:
        """What holds of it now, as the tables' row of the document says."""
        return what_holds(self._living(self.documents[document]))

    def _title(self, document: UUID) -> str | None:
        found = self.amended(document)
        return found.title if found is not None and "title" in found.amended else None

    @staticmethod
    def _living(state: _Document) -> list[Saying]:
        return [saying for saying in state.sayings if saying.by_revision or state.withdrawn is None or saying.order > state.withdrawn]

    def _withdraw(self, state: _Document, row: WithdrawalRow) -> Flip:
        shown = self._visible_order(row.document_id)
        state.withdrawn = row.order
        state.latest = max(row.order, state.latest or row.order)
        if self._older(shown or row.order, row.order):
            self.visible.pop(row.document_id)
        self._remove_older(row.document_id, row.order)
        return Flip(row.document_id, row.order, 0, shown)

    def _lives_on(self, state: _Document, withdrawal: WithdrawalRow) -> DocumentRow | None:
        """The last revision behind this late withdrawal that says the same as the visible one, which is older than the withdrawal."""
        shown = self._visible_order(withdrawal.document_id)
        if shown is None or shown > withdrawal.order:
            return None
        last = self._saying_the_same(state, shown)[-1:]
        return last[0] if last and last[0].order > withdrawal.order else None

    def _unchanged(self, state: _Document, row: DocumentRow, fact: Fact[Any]) -> bool:
        shown = self._visible_order(row.document_id)
        if shown is None or fact.data.force or self.how.get((row.document_id, shown)) != self.generation.how.get("transcribe"):
            return False
        same = self._saying_the_same(state, shown)
        return bool(same) and same[-1] is state.revisions[-1][0] and _fields(same[-1]) == _fields(row)

    @staticmethod
    def _saying_the_same(state: _Document, shown: OrderKey) -> list[DocumentRow]:
        """The visible revision and those that follow it, up to the first that says something else."""
        later = [(row, force) for row, force in state.revisions if row.order >= shown]
        if not later or later[0][0].order != shown:
            return []
        same = [later[0][0]]
        same += [row for row, _ in takewhile(lambda item: not item[1] and _fields(item[0]) == _fields(same[0]), later[1:])]
        return same

    def _complete(self, document: UUID, order: OrderKey, rows: Sequence[Row]) -> Flip | None:
        if not any(isinstance(row, SettledRow) for row in rows) or not self._later(order, self._visible_order(document)):
            return None
        parts = [row for key, row in self.rows.items() if isinstance(row, SettledRow) and key[1:3] == (document, order)]
        wanted = {kind: next((row.parts for row in parts if row.kind == kind), None) for kind in ("chunks", "vectors")}
        if any(total is None or sum(row.kind == kind for row in parts) < total for kind, total in wanted.items()):
            return None
        previous = self._visible_order(document)
        self._remove_older(document, order)
        chunks = sum(isinstance(row, ChildRow) for key, row in self.rows.items() if key[1:3] == (document, order))
        self.visible[document] = Flip(document, order, chunks, previous)
        return self.visible[document]

    def _remove_older(self, document: UUID, order: OrderKey) -> None:
        """Rows of its revisions; a dead letter belongs to none."""
        self.rows = {key: row for key, row in self.rows.items() if key[1] != document or key[2] is None or key[2] >= order}

    def _write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows.setdefault(_key(row), row)

    def _note_how(self, event: Projected) -> None:
        for row in event.rows:
            if isinstance(row, TextRow):
                self.how[row.document_id, row.order] = event.fact.how

    def _visible_order(self, document: UUID) -> OrderKey | None:
        shown = self.visible.get(document)
        return shown.order if shown else None

    @staticmethod
    def _older(order: OrderKey, than: OrderKey | None) -> bool:
        return than is not None and order < than

    @staticmethod
    def _later(order: OrderKey, than: OrderKey | None) -> bool:
        return than is None or order > than


def _fields(row: DocumentRow) -> tuple[Any, ...]:
    said = (row.title, row.filename, row.media_type, row.language, row.collection, row.tags, row.metadata, row.document_date, row.source_uri)
    return (row.content_sha256, row.external_id, *said)


def _key(row: Row) -> tuple[Any, ...]:
    """Kind, document, order, then what tells rows of that kind apart."""
    document, order = getattr(row, "document_id", None), getattr(row, "order", None)
    apart = (
        (row.kind, row.part)
        if isinstance(row, SettledRow)
        else tuple(filter(None, (getattr(row, name, None) for name in ("id", "chunk_id", "event_id", "run_id"))))
    )
    return (type(row).__name__, document, order, *apart)


@dataclass(slots=True)
class MemoryMemo:
    answers: dict[MemoKey, bytes] = field(default_factory=dict)

    async def recall(self, keys: Sequence[MemoKey]) -> Mapping[MemoKey, bytes]:
        return {key: self.answers[key] for key in keys if key in self.answers}

    async def store(self, answers: Mapping[MemoKey, bytes]) -> None:
        for key, answer in answers.items():
            self.answers.setdefault(key, answer)
