"""Saved questions: their rows, which of them a document could matter to, and what they answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector

from schemas.events import AnswerChanged, QuestionDeleted, QuestionSaved
from schemas.principals import Principal
from schemas.questions import QueryRequest
from schemas.standing_questions import AnswerChange, StandingQuestion, StandingQuestionRequest
from sql.database import Connection, PgStore, load_query, read_values
from sql.index.lexical import Term, resolve_text_search_config
from sql.page_cursor import format_cursor, parse_cursor, split_page

MIN_SHARE = 0.5
"""Share of the weight of a question's words, by idf, that a chunk must hold to matter by words."""
LEASE = timedelta(minutes=5)
"""Must exceed the time that a question takes: after it, another process asks again."""
MAX_CHANGES = 100

QuestionEvent = QuestionSaved | QuestionDeleted | AnswerChanged


async def write_question_event(connection: Connection, data: QuestionEvent) -> None:
    match data:
        case QuestionSaved():
            values = read_values(data, "question_id", "tenant", "asked_by", "readers", "request")
            query = load_query("insert_standing_question")
            await connection.execute(query, *values, data.saved_at)
        case QuestionDeleted():
            query = load_query("delete_standing_question")
            await connection.execute(query, data.question_id, data.tenant)
        case AnswerChanged():
            await connection.execute(load_query("insert_answer_change"), *_list_columns(data))


def _list_columns(change: AnswerChanged) -> list[Any]:
    columns = read_values(change, "change_id", "question_id", "tenant", "changed_at")
    return [*columns, change.model_dump(mode="json")]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A saved question as it is asked: as its owner, who reads what it could when it saved it."""

    question_id: UUID
    owner: Principal
    request: StandingQuestionRequest
    previous_run_id: UUID | None
    """None for an answer that is compared with no other."""

    @property
    def query(self) -> QueryRequest:
        return self.request.to_query()


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """Stored fields of an answer, by which new texts are matched. `vector` is None if the question
    was not embedded.
    """

    run_id: UUID
    answered_at: datetime
    documents: Sequence[UUID]
    generation: str
    language: str | None
    vector: NDArray[np.float32] | None
    min_similarity: float | None


IndexKey = tuple[str, str]
"""Tenant and generation: only vectors of one index are compared."""


@dataclass(frozen=True, slots=True)
class QuestionVector:
    question_id: UUID
    index: IndexKey
    vector: NDArray[np.float32]
    min_similarity: float | None
    answered_at: datetime


class PgStandingQuestions(PgStore):
    """Saved questions over Postgres. Every method may raise DatabaseUnavailable."""

    async def list_page(
        self, caller: Principal, *, after: str | None, limit: int
    ) -> tuple[list[StandingQuestion], str | None]:
        """Return a page, newest first, and the next cursor. A caller limited to readers sees only
        its own questions.
        """
        rows = await self._list(caller, *parse_cursor(after), limit + 1, None)
        return split_page(rows, limit, lambda row: format_cursor(row.saved_at, row.question_id))

    async def find(self, caller: Principal, question_id: UUID) -> StandingQuestion | None:
        return next(iter(await self._list(caller, None, None, 1, question_id)), None)

    async def _list(self, caller: Principal, *parameters: Any) -> list[StandingQuestion]:
        own = None if caller.readers is None else caller.id
        rows = await self._fetch("standing_questions", caller.tenant, own, *parameters)
        return [StandingQuestion.model_validate(dict(row)) for row in rows]

    async def list_changes(self, question_id: UUID) -> list[AnswerChange]:
        rows = await self._fetch("answer_changes", question_id, MAX_CHANGES)
        return [AnswerChange(**row) for row in rows]

    async def count(self, tenant: str) -> int:
        return int(await self._fetch_value("count_standing_questions", tenant))

    async def write(self, data: QuestionEvent) -> None:
        """Write the rows that a stage will write when it consumes the event."""
        async with self._transaction() as connection:
            await write_question_event(connection, data)

    async def fetch_state(self) -> tuple[bool, str | None, str | None]:
        """Return whether any question is saved, how far outcomes were matched, and the live
        generation.
        """
        row = await self._fetch_row("standing_state")
        assert row is not None
        return row["is_used"], row["cursor"], row["generation"]

    async def store_cursor(self, cursor: str | None) -> None:
        if cursor is None:
            await self._execute("delete_standing_cursor")
        else:
            await self._execute("store_standing_cursor", cursor)

    async def match(self, documents: Sequence[UUID], similar: Sequence[tuple[UUID, UUID]]) -> int:
        """Mark the questions as due that these documents could matter to; return their number.

        `similar` has pairs of a document and a question that one of its chunks is similar to.
        """
        columns = [[pair[column] for pair in similar] for column in (0, 1)]
        marked = await self._fetch_value(
            "match_standing_questions", list(documents), MIN_SHARE, *columns
        )
        return int(marked)

    async def fetch_vectors(self, after: datetime | None) -> list[QuestionVector]:
        """Return the vectors of the questions that were answered after this time."""
        rows = await self._fetch("standing_vectors", after)
        return [
            QuestionVector(
                row["id"],
                (row["tenant"], row["generation"]),
                row["vector"].to_numpy().astype(np.float32),
                row["min_similarity"],
                row["answered_at"],
            )
            for row in rows
        ]

    async def fetch_chunk_vectors(
        self, documents: Sequence[UUID]
    ) -> list[tuple[IndexKey, UUID, NDArray[np.float32]]]:
        """Return tenant and generation, document and vector of each visible chunk."""
        rows = await self._fetch("visible_vectors", list(documents))
        return [
            (
                (row["tenant"], row["generation"]),
                row["document_id"],
                row["embedding"].to_numpy().astype(np.float32),
            )
            for row in rows
        ]

    async def mark_outdated(self) -> None:
        """Mark questions as due whose last answer came from another generation."""
        await self._execute("mark_outdated_questions")

    async def claim(self, last_tenant: str) -> AskedQuestion | None:
        """Return a question to ask, of a tenant behind the last one if there is any."""
        return _to_question(await self._fetch_row("claim_due_question", LEASE, last_tenant))

    async def find_asked(self, question_id: UUID) -> AskedQuestion | None:
        return _to_question(await self._fetch_row("standing_question_owner", question_id))

    async def record_answer(
        self, asked: AskedQuestion, answer: StandingAnswer, change: AnswerChanged | None
    ) -> None:
        """Store the answer and the change, if there is one, and end the claim."""
        vector = None if answer.vector is None else HalfVector(answer.vector)
        values = [answer.run_id, answer.answered_at, list(answer.documents), answer.generation]
        async with self._transaction() as connection:
            tenant = await connection.fetchval(
                load_query("record_standing_answer"),
                asked.question_id,
                *(*values, vector, answer.min_similarity, change is not None),
            )
            if tenant is None:
                return
            terms = await connection.fetch(
                load_query("lexical_terms"),
                *(answer.generation, tenant, asked.request.query),
                resolve_text_search_config(answer.language),
            )
            await connection.execute(load_query("delete_standing_terms"), asked.question_id)
            await connection.execute(
                load_query("insert_standing_terms"),
                *(tenant, asked.question_id),
                *_compute_shares([Term(**dict(row)) for row in terms]),
            )
            if change is not None:
                delivery = "pending" if asked.request.hook_url else None
                query = load_query("insert_found_change")
                await connection.execute(query, *_list_columns(change), delivery)

    async def release(
        self, question_id: UUID, problem: dict[str, Any], again_at: datetime | None
    ) -> None:
        await self._execute("release_standing_question", question_id, problem, again_at)

    async def claim_unpublished(self) -> list[AnswerChanged]:
        rows = await self._fetch_column("claim_unpublished_changes")
        return [AnswerChanged.model_validate(data) for data in rows]

    async def mark_published(self, change_id: UUID) -> None:
        await self._execute("mark_change_published", change_id)

    async def claim_deliveries(self, limit: int) -> list[tuple[AnswerChanged, int]]:
        """Return changes to deliver, and which attempt each is."""
        rows = await self._fetch("claim_deliveries", limit)
        return [(AnswerChanged.model_validate(row["data"]), row["attempts"]) for row in rows]

    async def end_delivery(
        self, change_id: UUID, state: str, error: str | None, again_at: datetime | None
    ) -> None:
        await self._execute("end_delivery", change_id, state, error, again_at)

    async def redeliver(self, question_id: UUID) -> None:
        await self._execute("redeliver_changes", question_id)


def _to_question(row: Any) -> AskedQuestion | None:
    if row is None:
        return None
    readers = None if row["readers"] is None else tuple(row["readers"])
    return AskedQuestion(
        row["id"],
        Principal(row["asked_by"], row["tenant"], readers=readers),
        StandingQuestionRequest.model_validate(row["request"]),
        row["run_id"],
    )


def _compute_shares(terms: Sequence[Term]) -> tuple[list[str], list[str], list[float], list[bool]]:
    """Return configuration, lexeme and share of the question's weight of each term, and whether it
    is a key word, as columns.
    """
    totals: dict[str, float] = {}
    for term in terms:
        totals[term.cfg] = totals.get(term.cfg, 0.0) + term.idf
    ordered = sorted(terms, key=lambda term: -term.idf)
    shares = [term.idf / totals[term.cfg] for term in ordered]
    is_key, seen = list[bool](), dict[str, float]()
    for term, share in zip(ordered, shares, strict=True):
        # The words so far are key words while the others together reach the share that matters.
        is_key.append(1 - seen.get(term.cfg, 0.0) >= MIN_SHARE)
        seen[term.cfg] = seen.get(term.cfg, 0.0) + share
    return [term.cfg for term in ordered], [term.lexeme for term in ordered], shares, is_key
