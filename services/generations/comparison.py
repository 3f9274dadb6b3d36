"""Run the same queries against two generations and compare the results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from evaluation.comparison import (
    RESULT_DEPTH,
    SIDES,
    ComparedQuestion,
    ComparisonRequest,
    FailedQuestion,
    GoldenJudgement,
    JudgementCounts,
    SideResult,
    build_comparison_report,
)
from evaluation.judgements import CandidateDocument, JudgementTarget, map_judgements
from evaluation.metrics import RankedPassage
from retrieval.retriever import DryRun
from schemas.errors import AnabranchError, InvalidRequest, TransientError
from schemas.generations import Generation
from schemas.judgements import GradedPassage
from schemas.ports.engines import BlobStore, load_markdown
from schemas.principals import Principal
from schemas.questions import QueryRequest, SearchRequest
from services.query.retriever_pool import RetrieverPool
from sql.catalog.runs import PgFeedback
from sql.index.generations import PgGenerations, unknown_generation_error
from sql.index.snapshot import PgPassages

REPLAYED_FIELDS = (
    "query",
    "mode",
    "profile",
    "profiles",
    "overrides",
    "filters",
    "channels",
    "language",
)
"""Fields taken from a recorded request; the comparison sets the others."""


@dataclass(slots=True)
class ComparisonQuery:
    id: str
    source: str
    request: SearchRequest
    run_id: UUID | None = None
    judgements: list[JudgementTarget] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ComparedGeneration:
    """One of the two generations, with the documents that have judgements."""

    generation: Generation
    documents: Mapping[UUID, CandidateDocument]
    profile: str | None = None
    """None: the profile of each query."""


@dataclass(frozen=True, slots=True)
class GenerationComparer:
    retrievers: RetrieverPool
    generations: PgGenerations
    feedback: PgFeedback
    passages: PgPassages
    blobs: BlobStore

    async def compare(
        self, tenant: str, a: str, b: str, request: ComparisonRequest
    ) -> dict[str, Any]:
        """Build the comparison report.

        Queries run one at a time and the two generations alternate, so that a latency is that of
        one query. Raises NotFound, InvalidRequest for a generation that is not built, and the error
        that makes every query fail.
        """
        pair: list[Generation] = []
        for name in (a, b):
            # Raises for a generation that is unknown or not built.
            async with self.retrievers.acquire(name):
                generation = await self.generations.fetch(name)
            if generation is None:
                raise unknown_generation_error(name)
            pair.append(generation)
        queries, failed = await self._load_queries(
            tenant, request, [generation.name for generation in pair]
        )
        sides = [
            await self._load_side(tenant, generation, pair[0], queries, profile)
            for generation, profile in zip(pair, (None, request.profile_b), strict=True)
        ]
        await self._warm_up(tenant, queries, sides)
        replayed: list[ComparedQuestion] = []
        for index, query in enumerate(queries):
            try:
                replayed.append(
                    await self._run_query(tenant, query, sides, is_reversed=bool(index % 2))
                )
            except AnabranchError as error:
                failed[query.id] = FailedQuestion(query.request.query, error.code, error.detail)
        names = {side: generation.name for side, generation in zip(SIDES, pair, strict=True)}
        index_bytes = {side: await self.generations.fetch_bytes(names[side]) for side in SIDES}
        mapped_counts = {
            name: sum(map_judgements(query.judgements, side.documents)[1] for query in queries)
            for name, side in zip(SIDES, sides, strict=True)
        }
        judgement_counts = JudgementCounts(
            sum(len(query.judgements) for query in queries), mapped_counts
        )
        report = build_comparison_report(names, replayed, judgement_counts, index_bytes, failed)
        profiles = {"A": request.profile, "B": request.profile_b or request.profile}
        return report | {"profiles": profiles}

    async def _warm_up(
        self, tenant: str, queries: Sequence[ComparisonQuery], sides: Sequence[ComparedGeneration]
    ) -> None:
        """Run the first query that succeeds, so that no measured latency includes a cold start.

        Raises if none does.
        """
        failures: list[AnabranchError] = []
        for query in queries:
            try:
                await self._run_query(tenant, query, sides)
            except TransientError:
                raise  # the other queries would wait as long
            except AnabranchError as error:
                failures.append(error)
            else:
                return
        if failures:
            raise failures[0]

    async def _load_queries(
        self, tenant: str, request: ComparisonRequest, names: Sequence[str]
    ) -> tuple[list[ComparisonQuery], dict[str, FailedQuestion]]:
        failed: dict[str, FailedQuestion] = {}
        period = (request.since, request.until)
        past_queries = (
            await self.feedback.fetch_requests(tenant, *period, request.queries)
            if request.queries
            else []
        )
        judgements_by_text: dict[str, list[JudgementTarget]] = defaultdict(list)
        for query, judged in await self.feedback.fetch_judgements(tenant, *period):
            judgements_by_text[query].append(_judgement_from_feedback(judged))
        document_ids = await self._resolve_document_names(tenant, request, names)
        # Three origins: golden questions, recorded runs, and judged questions that are neither.
        queries = [
            ComparisonQuery(
                f"golden:{number}",
                "golden",
                _build_request(golden.model_dump(exclude={"judgements"}), request),
                None,
                _judgements_from_golden(golden.judgements, document_ids),
            )
            for number, golden in enumerate(request.golden, 1)
        ]
        for run_id, past_request in past_queries:
            try:
                queries.append(
                    ComparisonQuery(
                        f"real:{run_id}", "real", _build_request(past_request, request), run_id
                    )
                )
            # An earlier version recorded it: report the question instead of failing the comparison.
            except ValidationError as error:
                failed[f"real:{run_id}"] = FailedQuestion(
                    str(past_request.get("query")),
                    InvalidRequest.code,
                    f"{error.error_count()} fields are no longer accepted",
                )
        for query in judgements_by_text.keys() - {
            comparison_query.request.query for comparison_query in queries
        }:
            queries.append(
                ComparisonQuery(
                    f"feedback:{query}", "feedback", _build_request({"query": query}, request)
                )
            )
        for comparison_query in queries:
            comparison_query.judgements += judgements_by_text.get(
                comparison_query.request.query, []
            )
        return queries, failed

    async def _resolve_document_names(
        self, tenant: str, request: ComparisonRequest, generation_names: Sequence[str]
    ) -> dict[str, UUID]:
        """Map external ids and file names to documents visible in either generation; the newest
        wins.
        """
        external_ids = sorted(
            {
                judgement.external_id
                for golden in request.golden
                for judgement in golden.judgements
                if judgement.external_id is not None and judgement.document_id is None
            }
        )
        return {
            name: document.id
            for generation_name in (generation_names if external_ids else ())
            for document in await self.passages.fetch_documents(
                generation_name, tenant, [], external_ids
            )
            for name in document.names
        }

    async def _load_side(
        self,
        tenant: str,
        generation: Generation,
        reference: Generation,
        queries: Sequence[ComparisonQuery],
        profile: str | None,
    ) -> ComparedGeneration:
        ids = sorted({judged.document_id for query in queries for judged in query.judgements})
        visible_documents = (
            await self.passages.fetch_documents(generation.name, tenant, ids, []) if ids else []
        )
        # Character offsets of judgements apply only to texts that were made the same way.
        has_judged_text = generation.how.get("transcribe") == reference.how.get("transcribe")
        documents = {}
        for document in visible_documents:
            parents = await self.passages.fetch_parent_spans(generation.name, document.id)
            text = await load_markdown(document.markdown, document.blob_key, self.blobs)
            documents[document.id] = CandidateDocument(
                document.id, document.revision, text, parents, has_judged_text
            )
        return ComparedGeneration(generation, documents, profile)

    async def _run_query(
        self,
        tenant: str,
        query: ComparisonQuery,
        sides: Sequence[ComparedGeneration],
        *,
        is_reversed: bool = False,
    ) -> ComparedQuestion:
        """Run the query on both generations; the order alternates."""
        answers: dict[str, SideResult] = {}
        # Different texts have different offsets, so passages are also compared by their words.
        match_words = sides[0].generation.how.get("transcribe") != sides[1].generation.how.get(
            "transcribe"
        )
        for name, side in sorted(
            zip(SIDES, sides, strict=True), reverse=is_reversed, key=lambda item: item[0]
        ):
            async with self.retrievers.acquire(side.generation.name) as (generation, retriever):
                # A principal without reader limits: the whole tenant is compared.
                dry_run = await retriever.dry_run(
                    Principal("comparison", tenant),
                    query.request.model_copy(
                        update={
                            "generation": generation,
                            **(_override_profile(side.profile) if side.profile else {}),
                        }
                    ),
                )
            answers[name] = await self._grade_answer(dry_run, query, side, match_words)
        return ComparedQuestion(
            query.id, query.request.query, query.source, answers["A"], answers["B"], query.run_id
        )

    async def _grade_answer(
        self, dry_run: DryRun, query: ComparisonQuery, side: ComparedGeneration, match_words: bool
    ) -> SideResult:
        parents = await self.passages.fetch_parents(
            side.generation.name, [item.parent_id for item in dry_run.passages]
        )
        passages = [
            RankedPassage(
                parent.id,
                parent.document_id,
                parent.char_start,
                parent.char_end,
                frozenset(parent.text.casefold().split()) if match_words else frozenset(),
            )
            for item in dry_run.passages
            if (parent := parents.get(item.parent_id)) is not None
        ]
        grades, _ = map_judgements(query.judgements, side.documents)
        trace = dry_run.trace
        return SideResult(
            passages,
            dry_run.refused,
            trace.timings_ms.get("total", 0.0),
            trace.model_calls,
            trace.tokens,
            grades,
        )


def _override_profile(name: str) -> dict[str, Any]:
    return {"profile": name, "profiles": {}, "overrides": {}}


def _build_request(values: Mapping[str, Any], comparison: ComparisonRequest) -> SearchRequest:
    """Raise ValidationError if an earlier version recorded fields that are no longer accepted."""
    past_values = {name: values[name] for name in REPLAYED_FIELDS if values.get(name) is not None}
    profile_override = _override_profile(comparison.profile) if comparison.profile else {}
    kind = QueryRequest if comparison.answers else SearchRequest
    # One depth for all queries, whatever the recorded requests had.
    return kind.model_validate({**past_values, **profile_override, "k": RESULT_DEPTH})


def _judgement_from_feedback(judged: GradedPassage) -> JudgementTarget:
    names = [field.name for field in fields(JudgementTarget)]
    return JudgementTarget(**{name: getattr(judged, name) for name in names})


def _judgements_from_golden(
    judgements: Iterable[GoldenJudgement], document_ids: Mapping[str, UUID]
) -> list[JudgementTarget]:
    """Convert golden judgements. One of a document that is visible in neither generation stays,
    unmapped.
    """
    return [
        JudgementTarget(
            judgement.document_id or document_ids.get(judgement.external_id or "", UUID(int=0)),
            judgement.revision,
            judgement.span.char_start if judgement.span else None,
            judgement.span.char_end if judgement.span else None,
            judgement.quote,
            judgement.grade,
        )
        for judgement in judgements
    ]
