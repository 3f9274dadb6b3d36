"""Plan and route a question by a chat model.

A model that fails costs its time, not the question: the rules decide.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retrieval.prompting import (
    Prompt,
    build_object_schema,
    normalize_whitespace,
    render_prompt,
)
from retrieval.question.query_plan import QueryPlan
from retrieval.question.stated_filters import MAX_TAGS, StatedFilters
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.routing import RoutingDecision
from retrieval.redaction import MASK
from schemas.channels import CHANNELS, Channel
from schemas.errors import AnabranchError
from schemas.planning import INTENTS, Intent
from schemas.ports.engines import ChatModel
from schemas.questions import Filters, QueryRequest, Route, RouteMode, has_word

MAX_KEYWORDS = 24
MAX_NAMES = 16
ReplyT = TypeVar("ReplyT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A chat model that was asked. `failure` is the reason why its reply was discarded."""

    task: Literal["standalone", "plan", "route", "cypher", "answer"]
    model: str
    prompt_sha256: str
    failure: str | None = None

    @property
    def note(self) -> str | None:
        if self.failure is None:
            return None
        failure = self.failure.rstrip(".")
        if self.task == "cypher":
            return (
                f"The chat model {self.model} gave no usable graph query ({failure}); the "
                "built-in one was used."
            )
        verb = {"plan": "planned", "route": "routed"}.get(self.task, "rewritten")
        return (
            f"The chat model {self.model} gave no usable {self.task} ({failure}); the "
            f"question was {verb} by rules."
        )


class _PlanReply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    intent: Intent
    keywords: list[Annotated[str, Field(max_length=100)]] = Field(max_length=MAX_KEYWORDS)
    semantic_query: str = Field(max_length=2000)
    date_from: str
    date_to: str
    tags: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(max_length=MAX_TAGS)
    weights: dict[Channel, Annotated[float, Field(ge=0, le=3)]]
    k: dict[Channel, Annotated[int, Field(ge=0, le=1000)]]


class _StandaloneReply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: str = Field(max_length=2000)


class _RouteReply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: Literal["VECTOR", "GRAPH", "HYBRID"]
    reason: str = Field(max_length=500)


_TEXT, _TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
_STANDALONE_SCHEMA = build_object_schema({"question": _TEXT})
_PLAN_SCHEMA = build_object_schema(
    {
        "intent": {"type": "string", "enum": list(INTENTS)},
        "keywords": _TEXTS,
        "semantic_query": _TEXT,
        "date_from": _TEXT,
        "date_to": _TEXT,
        "tags": _TEXTS,
        "weights": build_object_schema({channel: {"type": "number"} for channel in CHANNELS}),
        "k": build_object_schema({channel: {"type": "integer"} for channel in CHANNELS}),
    }
)
_ROUTE_SCHEMA = build_object_schema(
    {"mode": {"type": "string", "enum": ["VECTOR", "GRAPH", "HYBRID"]}, "reason": _TEXT}
)
_MODES: Mapping[str, RouteMode] = {"VECTOR": "vector", "GRAPH": "graph", "HYBRID": "hybrid"}


async def rewrite_by_model(
    query: QueryContext, resources: RetrievalResources
) -> tuple[str | None, ModelUse | None]:
    """Return the question as the profile's model fills it in from the conversation.

    None if no model is asked, or if its reply is of no use.
    """
    request, profile, planner = query.request, query.profile.plan, resources.planner
    if (
        not isinstance(request, QueryRequest)
        or not request.history
        or profile.rewrite != "default"
        or planner is None
    ):
        return None, None
    # A template of the profile is one for plans.
    own_prompt = profile.prompt.model_copy(update={"template": None})
    prompt = render_prompt("standalone", own_prompt, query.plan.language)
    turns = [turn.model_dump() for turn in request.history]
    user = query.redactor.redact_value({"history": turns, "question": request.query})
    reply, use = await request_reply(
        "standalone",
        planner,
        prompt,
        json.dumps(user, ensure_ascii=False),
        _STANDALONE_SCHEMA,
        _StandaloneReply,
        profile.timeout_s,
    )
    question = normalize_whitespace(reply.question) if reply else ""
    # A masked identifier would be searched for as it is.
    if reply is not None and (MASK in question or not has_word(question)):
        return None, replace(use, failure="it holds no question")
    return question or None, use


async def plan_by_model(
    query: QueryContext, resources: RetrievalResources
) -> tuple[QueryPlan, ModelUse | None]:
    """Return the plan of the profile's model, else the plan by rules."""
    profile, planner = query.profile.plan, resources.planner
    if profile.model != "default" or planner is None:
        return query.plan, None
    prompt = render_prompt("plan", profile.prompt, query.plan.language)
    today = resources.clock().date().isoformat()
    user = format_question(query, {"today": today})
    reply, use = await request_reply(
        "plan", planner, prompt, user, _PLAN_SCHEMA, _PlanReply, profile.timeout_s
    )
    if reply is None:
        return query.plan, use
    try:
        return _merge_plan(query, reply), use
    except ValueError as error:
        return query.plan, replace(use, failure=str(error))


def _merge_plan(query: QueryContext, reply: _PlanReply) -> QueryPlan:
    """Return the plan with what the model says. Raises ValueError for what cannot be used."""
    if not any(reply.weights.values()):
        raise ValueError("all weights are 0")
    changes: dict[str, Any] = {
        name: date.fromisoformat(text)
        for name, text in (("date_from", reply.date_from), ("date_to", reply.date_to))
        if text
    }
    if reply.tags:
        changes["tags"] = reply.tags
    plan, requested = query.plan, query.request.filters
    # Filters of the request, and words of the question that state some, are surer than a model.
    is_open = requested == Filters() and query.request.infer_filters and query.profile.plan.filters
    stated = plan.stated
    if changes and is_open and stated is None:
        filters = requested.model_copy(update=changes)
        stated = StatedFilters(filters, (), plan.question)
    keywords = tuple(filter(None, map(normalize_whitespace, reply.keywords)))
    rewritten = normalize_whitespace(reply.semantic_query)
    return replace(
        plan,
        intent=reply.intent,
        # A masked identifier would be searched for as it is.
        search_words=tuple(word for word in keywords if MASK not in word),
        rewritten="" if MASK in rewritten else rewritten,
        stated=stated,
        unfiltered=plan.unfiltered or (plan if stated is not None else None),
        weights={**plan.weights, **reply.weights},
        k={**plan.k, **{channel: k for channel, k in reply.k.items() if k}},
        planned_by="model",
    )


async def route_by_model(
    query: QueryContext, resources: RetrievalResources, decision: RoutingDecision
) -> tuple[Route, ModelUse | None]:
    """Return the route of the model when the rules are unsure, else the route by rules."""
    profile, router = query.profile.route, resources.router
    if decision.is_sure or profile.model != "default" or router is None:
        return decision.route, None
    prompt = render_prompt("route", profile.prompt, query.plan.language)
    user = format_question(query, {"names": list(query.plan.written_names[:MAX_NAMES])})
    reply, use = await request_reply(
        "route", router, prompt, user, _ROUTE_SCHEMA, _RouteReply, profile.timeout_s
    )
    if reply is None:
        return decision.route, use
    reason = normalize_whitespace(reply.reason, 200) or f"{use.model} gives no reason"
    return Route(mode=_MODES[reply.mode], decided_by="model", reason=reason), use


def format_question(query: QueryContext, fields: Mapping[str, Any]) -> str:
    """Write one JSON object. The model sees no masked identifier."""
    question = query.redactor.mask(normalize_whitespace(query.plan.question))
    return json.dumps(
        query.redactor.redact_value({"question": question, **fields}), ensure_ascii=False
    )


async def request_reply(
    task: Literal["standalone", "plan", "route", "cypher"],
    chat: ChatModel,
    prompt: Prompt,
    user: str,
    schema: Mapping[str, Any],
    reply_type: type[ReplyT],
    timeout_s: float,
) -> tuple[ReplyT | None, ModelUse]:
    """Return the validated reply, or None with the failure."""
    try:
        async with asyncio.timeout(timeout_s):
            reply = await chat.complete(
                prompt.system, user, schema, name=task, options=prompt.options
            )
    except (AnabranchError, TimeoutError) as error:
        failure = error.detail if isinstance(error, AnabranchError) else "timed out"
        return None, ModelUse(task, chat.model, prompt.sha256, failure)
    use = ModelUse(task, reply.model, prompt.sha256)
    try:
        return reply_type.model_validate(dict(reply.data)), use
    except ValidationError as error:
        failure = f"{error.error_count()} fields of the reply are out of bounds"
        return None, replace(use, failure=failure)
