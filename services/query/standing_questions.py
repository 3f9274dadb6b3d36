"""Save and delete questions, ask them again when a document could change the answer, and publish
what changed.

Topic `outcomes` tells which documents became searchable or were removed. Nothing is replayed on it
and a rebuild writes nothing there, so only a real change asks a question again. A question is asked
in the background, by the same path as any other and as its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog

from retrieval.answering.extractive_answer import MODEL
from retrieval.retriever import Retriever
from retrieval.runs.recorded_run import RecordedRun, parse_run
from schemas.errors import (
    AnabranchError,
    CursorAhead,
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    TransientError,
    unknown_resource_error,
)
from schemas.events import (
    AnswerChanged,
    DocumentIndexed,
    QuestionDeleted,
    QuestionSaved,
    RemovalCompleted,
)
from schemas.ids import content_id
from schemas.ports.feed import RecordFeed
from schemas.principals import Principal
from schemas.questions import QueryRequest, QueryResponse
from schemas.run_records import RunDiff
from schemas.standing_questions import (
    AnswerChange,
    AnswerPart,
    SavedQuestion,
    StandingQuestion,
    StandingQuestionRequest,
)
from schemas.topics import OUTCOMES
from services.background_tasks import repeat
from services.publishing import EventPublisher
from services.query.question_vectors import QuestionVectors
from services.query.run_history import RunHistory
from services.query.web_hooks import WebHooks
from sql.index.standing_questions import AskedQuestion, PgStandingQuestions, StandingAnswer

log = structlog.get_logger(__name__)
CE_SOURCE = "anabranch/questions"
MAX_PER_TENANT = 20_000
PAGE_SIZE = 200
POLL_S = 1.0
ASK_TIMEOUT_S = 240.0
"""Below the lease of a claim, so that no other process asks meanwhile."""
TIMED_OUT = TransientError(f"It took more than {ASK_TIMEOUT_S:g} s.", code="RUN_TIMED_OUT")
RETRY_S = 30.0
SIMILARITY_MARGIN = 0.02
"""How much less similar than what the answer cites a chunk may be and still matter. Cosines of the
local model differ by less between two wordings of one statement."""


@dataclass(frozen=True, slots=True)
class StandingQuestionService:
    """Every method raises NotFound for a question that the caller may not see."""

    tables: PgStandingQuestions
    publisher: EventPublisher
    hooks: WebHooks
    check_profile: Callable[[str], object]
    """Raises InvalidRequest for an unknown workflow profile."""

    async def save(self, caller: Principal, request: StandingQuestionRequest) -> SavedQuestion:
        """Save a question, which is then asked for the first time.

        Raises InvalidRequest, and ForbiddenAddress for a web hook that may not be called.
        """
        if request.profile is not None:
            self.check_profile(request.profile)
        if request.hook_url is not None:
            await self.hooks.build_sender().check_url(request.hook_url)
        if await self.tables.count(caller.tenant) >= MAX_PER_TENANT:
            raise InvalidRequest(
                f"Tenant {caller.tenant} has {MAX_PER_TENANT} saved questions.",
                code="TOO_MANY_QUESTIONS",
                remedy="Delete some with DELETE /v1/questions/{question_id}.",
            )
        saved = QuestionSaved(
            question_id=self.publisher.fresh_id(),
            tenant=caller.tenant,
            asked_by=caller.id,
            readers=None if caller.readers is None else list(caller.readers),
            request=request,
            saved_at=self.publisher.clock(),
        )
        await self._publish(saved)
        secret = self.hooks.format_secret(saved.question_id) if request.hook_url else None
        fields = saved.model_dump(include={"question_id", "asked_by", "request", "saved_at"})
        return SavedQuestion(**fields, is_due=True, hook_secret=secret)

    async def get(self, caller: Principal, question_id: UUID) -> StandingQuestion:
        if (found := await self.tables.find(caller, question_id)) is None:
            raise unknown_resource_error(
                "saved question",
                question_id,
                "List saved questions with `anabranch questions list` or GET /v1/questions.",
            )
        return found

    async def delete(self, caller: Principal, question_id: UUID) -> StandingQuestion:
        found = await self.get(caller, question_id)
        await self._publish(QuestionDeleted(question_id=question_id, tenant=caller.tenant))
        return found

    async def list_changes(self, caller: Principal, question_id: UUID) -> list[AnswerChange]:
        await self.get(caller, question_id)
        return await self.tables.list_changes(question_id)

    async def redeliver(self, caller: Principal, question_id: UUID) -> list[AnswerChange]:
        """Deliver the changes again whose web hook failed; return all changes."""
        await self.get(caller, question_id)
        await self.tables.redeliver(question_id)
        return await self.tables.list_changes(question_id)

    async def _publish(self, data: QuestionSaved | QuestionDeleted) -> None:
        event_id = content_id("event", data.name, data.question_id)
        await self.publisher.publish(data, CE_SOURCE, str(data.question_id), event_id, data.tenant)
        await self.tables.write(data)


@dataclass(slots=True)
class QuestionAsker:
    """Ask saved questions again. Any number of processes may run it."""

    tables: PgStandingQuestions
    publisher: EventPublisher
    feed: RecordFeed
    history: RunHistory
    acquire_retriever: Callable[[str | None], AbstractAsyncContextManager[tuple[str, Retriever]]]
    apply_default_profile: Callable[[Principal, QueryRequest], Awaitable[QueryRequest]]
    hooks: WebHooks
    vectors: QuestionVectors
    wait_until_published: Callable[[UUID], Awaitable[None]]
    generation: str | None = None
    """The live generation when documents were matched last."""
    last_tenant: str = ""

    async def run(self) -> None:
        """Match new documents, ask what is due, and publish and deliver what changed, until
        cancelled.
        """
        steps = self.match_next, self.ask_next, self.publish_next, self.hooks.deliver_next
        await asyncio.gather(*map(self._repeat, steps))

    async def _repeat(self, step: Callable[[], Awaitable[bool]]) -> None:
        async def run_step() -> bool:
            try:
                return await step()
            except TransientError:
                raise
            except Exception:
                # Keep running: no saved question would be asked until the next start.
                log.exception("standing_questions_failed")
                return False

        await repeat(run_step, POLL_S, "standing_questions_postponed")

    async def match_next(self) -> bool:
        """Match a page of outcomes with the questions; return whether more may follow.

        Two processes may match the same page, which marks the same questions.
        """
        is_used, cursor, generation = await self.tables.fetch_state()
        if not is_used:
            if cursor is not None:
                await self.tables.store_cursor(None)
            return False
        # Documents of before are in the first answer: questions are asked once this is stored.
        if cursor is None:
            await self.tables.store_cursor(await self.feed.fetch_end_cursor([OUTCOMES]))
            return True
        if generation != self.generation:
            await self.tables.mark_outdated()
            self.generation = generation
        try:
            page = await self.feed.read_page(cursor, [OUTCOMES], PAGE_SIZE)
        except CursorAhead as error:
            # Another log was restored: its documents are no changes.
            log.warning("question_matching_restarted", detail=error.detail)
            await self.tables.store_cursor(await self.feed.fetch_end_cursor([OUTCOMES]))
            return False
        documents = set[UUID]()
        for record in page.records:
            try:
                data = (await self.publisher.codec.decode(record.stored_record)).data
            except TransientError:
                raise
            except AnabranchError as error:
                log.warning("outcome_skipped", code=error.code, detail=error.detail)
                continue
            is_change = isinstance(data, DocumentIndexed | RemovalCompleted)
            if is_change and data.document_id is not None and data.code != "UNCHANGED":
                documents.add(data.document_id)
        if documents:
            similar = await self.vectors.find_similar(sorted(documents))
            due = await self.tables.match(sorted(documents), similar)
            log.info("questions_matched", documents=len(documents), due=due)
        if page.cursor != cursor:
            await self.tables.store_cursor(page.cursor)
        return page.has_more

    async def ask_next(self) -> bool:
        """Ask one question that is due; return whether there was one."""
        if (asked := await self.tables.claim(self.last_tenant)) is None:
            return False
        self.last_tenant = asked.owner.tenant
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._ask(asked)
        except (AnabranchError, TimeoutError) as raised:
            error = raised if isinstance(raised, AnabranchError) else TIMED_OUT
            log.warning("question_not_asked", question=str(asked.question_id), code=error.code)
            is_transient = isinstance(error, TransientError) or error.code == "RUN_ERASED"
            again_at = self.publisher.clock() + timedelta(seconds=RETRY_S) if is_transient else None
            await self.tables.release(asked.question_id, error.to_dict(), again_at)
        return True

    async def _ask(self, asked: AskedQuestion) -> None:
        owner = asked.owner
        query = await self.apply_default_profile(owner, asked.query)
        now = await self.history.run_now(owner, query)
        async with self.acquire_retriever(now.response.generation) as (_, retriever):
            vector, language = await retriever.embed_question(owner, query)
        previous = await self._fetch_previous(asked)
        change = None
        if previous is not None:
            failed_then, failed_now = list_failures(previous), list_failures(now)
            if failed := sorted(failed_now - failed_then):
                raise EngineUnavailable(f"The answer lacks {', '.join(failed)}.")
        # An answer that lacked what this one has differs without a document that does.
        if previous is not None and failed_then == failed_now:
            diff = await self.history.compare(owner, previous, now)
            change = self._build_change(asked, diff, previous, now)
        answer = StandingAnswer(
            now.response.run_id,
            self.publisher.clock(),
            sorted({parent.document_id for parent in now.run_record.parents}),
            now.response.generation,
            language,
            vector,
            find_min_similarity(now),
        )
        # Its run, which the next answer is compared with, is lost if this process is killed before.
        await self.wait_until_published(answer.run_id)
        await self.tables.record_answer(asked, answer, change)
        log.info("question_asked", question=str(asked.question_id), changed=change is not None)

    async def _fetch_previous(self, asked: AskedQuestion) -> RecordedRun | None:
        """Return the previous run, or None if there is none, or if it was erased or is unreadable:
        the new answer is then the first.
        """
        if asked.previous_run_id is None:
            return None
        try:
            return parse_run(await self.history.runs.get_run(asked.owner, asked.previous_run_id))
        except NotFound as error:
            log.info("previous_answer_unknown", run=str(asked.previous_run_id), code=error.code)
            return None

    def _build_change(
        self, asked: AskedQuestion, diff: RunDiff, previous: RecordedRun, now: RecordedRun
    ) -> AnswerChanged | None:
        """Return the change, or None: a chat model words the same quotes in many ways."""
        is_quoted = previous.is_quoted and now.is_quoted
        has_switched = (diff.then.refused, diff.then.code) != (diff.now.refused, diff.now.code)
        found: dict[AnswerPart, bool] = {
            "answer": diff.answer_changed and (is_quoted or diff.citations_changed or has_switched),
            "citations": diff.citations_changed,
            "refusal": has_switched,
        }
        changes = [part for part, is_changed in found.items() if is_changed]
        if not changes:
            return None
        documents = [
            passage.document_id
            for passage in (*diff.removed, *diff.added)
            if passage.reason is not None and passage.reason.cause == "document"
        ]
        return AnswerChanged(
            change_id=content_id("change", asked.question_id, now.response.run_id),
            question_id=asked.question_id,
            tenant=asked.owner.tenant,
            changed_at=self.publisher.clock(),
            previous_run_id=previous.response.run_id,
            run_id=now.response.run_id,
            changes=changes,
            causes=list(dict.fromkeys(reason.cause for reason in diff.reasons)),
            documents=list(dict.fromkeys(documents)),
        )

    async def publish_next(self) -> bool:
        """Publish what changed; return whether something did."""
        changes = await self.tables.claim_unpublished()
        for change in changes:
            # A repeat after a crash has the same id, and readers drop it.
            await self.publisher.publish(
                change, CE_SOURCE, str(change.question_id), change.change_id, tenant=change.tenant
            )
            await self.tables.mark_published(change.change_id)
        return bool(changes)


def list_failures(run: RecordedRun) -> set[str]:
    """Return the channels that failed, and the chat model if quotes stand in for its answer."""
    failed = {f"channel {name}" for name in run.response.trace.channels_failed}
    draft, prompts = run.run_record.draft, run.run_record.prompts
    is_fallback = draft is not None and draft.model == MODEL and "answer" in prompts
    return failed | {"the chat model"} if is_fallback else failed


def find_min_similarity(run: RecordedRun) -> float | None:
    """Return the similarity from which on a chunk could matter, or None: any could.

    It is a little below that of the passages that the answer cites; without an answer, it is that
    of the best candidate.
    """
    similarities = {
        candidate.chunk_id: candidate.channels["semantic"].score
        for candidate in run.candidates
        if "semantic" in candidate.channels
    }
    if not similarities:
        return None
    citations = run.response.citations if isinstance(run.response, QueryResponse) else []
    cited = [similarities[one.chunk_id] for one in citations if one.chunk_id in similarities]
    return min(cited) - SIMILARITY_MARGIN if cited else max(similarities.values())
