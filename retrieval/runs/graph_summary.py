"""Summarize the relations and claims around a recorded answer, by one call of the chat model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engines.language import fold_name
from retrieval.answering.answer_drafts import find_unsupported_numbers, strip_citation_marks
from retrieval.prompting import Prompt, build_object_schema, normalize_whitespace, render_prompt
from retrieval.ranking.query_context import ModelBudget
from retrieval.runs.recorded_run import RecordedRun
from schemas.budgets import PriceTable
from schemas.citations import GraphFact
from schemas.errors import EngineUnavailable, InvalidRequest
from schemas.ids import sha256_hex
from schemas.ports.engines import ChatModel
from schemas.ports.metering import use_meter
from schemas.ports.search import SnapshotVersion
from schemas.questions import QueryResponse
from schemas.run_records import GraphBullet, GraphSummary

MAX_BULLETS, MAX_BULLET = 12, 600
DROPPED = "Bullets removed for lack of a valid citation: {}."
_SCHEMA = build_object_schema(
    {
        "bullets": {
            "type": "array",
            "items": build_object_schema(
                {
                    "text": {"type": "string"},
                    "citations": {"type": "array", "items": {"type": "integer"}},
                }
            ),
        }
    }
)


@dataclass(frozen=True, slots=True)
class SummaryOutcome:
    """A summary and the version of the index before it was written, as the answer cache needs."""

    response: GraphSummary
    snapshot_version: SnapshotVersion | None


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """The request of one summary, built from what the run recorded."""

    run: RecordedRun
    facts: Sequence[GraphFact]
    chat: ChatModel
    prompt: Prompt
    user: str

    @property
    def content_sha256(self) -> str:
        """Identifies everything that the summary depends on."""
        options = self.prompt.options
        parts = (self.chat.model, repr(options), self.prompt.system, self.user)
        return sha256_hex(json.dumps(parts).encode())

    async def write(self, prices: PriceTable) -> GraphSummary:
        """Raises EngineUnavailable, InvalidModelOutput, and BudgetExceeded if the caps of the
        run's profile do not allow the call.
        """
        profile = self.run.run_record.profile
        budget = ModelBudget(profile.budget, prices)
        try:
            async with asyncio.timeout(profile.answer.timeout_s):
                with use_meter(budget):
                    reply = await self.chat.complete(
                        self.prompt.system,
                        self.user,
                        _SCHEMA,
                        name="summary",
                        options=self.prompt.options,
                    )
        except TimeoutError:
            raise EngineUnavailable(
                f"The chat model {self.chat.model} timed out after {profile.answer.timeout_s:g} s."
            ) from None
        # The port has validated the reply against the schema.
        written = reply.data["bullets"][:MAX_BULLETS]
        bullets = [bullet for item in written if (bullet := self._verify(**item)) is not None]
        cited = {n for bullet in bullets for n in bullet.citations}
        n_dropped = len(written) - len(bullets)
        usage = budget.list_usage()
        return GraphSummary(
            run_id=self.run.response.run_id,
            bullets=bullets,
            citations=[fact for fact in self.facts if fact.n in cited],
            warnings=[DROPPED.format(n_dropped)] if n_dropped else [],
            model=reply.model,
            prompt_sha256=self.prompt.sha256,
            model_calls=sum(item.calls for item in usage),
            tokens=sum(item.input_tokens + item.output_tokens for item in usage),
            cost=budget.compute_cost(),
            currency=prices.currency,
            usage=usage,
        )

    def _verify(self, text: str, citations: list[int]) -> GraphBullet | None:
        """Return the bullet with the facts that support it, or None without one.

        A fact supports a bullet that names one of its things. A number must stand in a quote.
        """
        text = normalize_whitespace(strip_citation_marks(text), MAX_BULLET)
        folded = fold_name(text)
        cited = [
            fact
            for fact in self.facts
            if fact.n in citations
            and any(fold_name(name) in folded for name in (fact.subject, fact.object) if name)
        ]
        if not cited or find_unsupported_numbers(text, [fact.quote for fact in cited]):
            return None
        return GraphBullet(text=text, citations=[fact.n for fact in cited])


def build_summary_task(run: RecordedRun, chat: ChatModel | None) -> SummaryTask:
    """Raises InvalidRequest with code NO_GRAPH_FACTS or NO_CHAT_MODEL."""
    response, profile = run.response, run.run_record.profile
    facts = response.graph_facts if isinstance(response, QueryResponse) else []
    if not facts:
        raise InvalidRequest(
            f"Run {response.run_id} read no relations or claims of the graph.",
            code="NO_GRAPH_FACTS",
            remedy="Ask again with mode `hybrid` or `graph`, and with `return_context`.",
        )
    if chat is None or profile.answer.model == "extractive":
        raise InvalidRequest(
            "No chat model is configured that could write a summary."
            if chat is None
            else f"Profile {profile.name!r} uses no chat model.",
            code="NO_CHAT_MODEL",
            remedy="Set ANABRANCH_CHAT__BASE_URL and ANABRANCH_CHAT__MODEL, and ask with a profile "
            "whose `answer.model` is `default`.",
        )
    # The template of the profile is for answers; its role, language and options hold here too.
    own = profile.answer.prompt.model_copy(update={"template": None})
    prompt = render_prompt("summary", own, run.run_record.language)
    body = {
        "relations": [_to_prompt(fact) for fact in facts if fact.kind == "relation"],
        "claims": [_to_prompt(fact) for fact in facts if fact.kind == "claim"],
        "question": normalize_whitespace(run.run_record.question),
    }
    return SummaryTask(run, facts, chat, prompt, json.dumps(body, ensure_ascii=False))


def _to_prompt(fact: GraphFact) -> Mapping[str, Any]:
    labels = ("predicate", "object") if fact.kind == "relation" else ("property", "value")
    names = ("subject", fact.subject), (labels[0], fact.predicate), (labels[1], fact.object)
    return {
        "n": fact.n,
        **{name: normalize_whitespace(value) for name, value in names},
        "text": normalize_whitespace(fact.quote),
    }
