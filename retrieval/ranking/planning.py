"""Choose the channels of a question: by the request, by rules, or by a chat model when those are
unsure. The model may also plan the question, and write Cypher for a relation.

A route that the request did not set is widened at most once, when it finds too little. A model that
fails costs its time, not the question: the rules decide. Cypher is checked before it
becomes part of the plan, and again by the server's adapter before it runs.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engines.graph.cypher import check_cypher, check_parameters
from retrieval.prompting import Prompt, build_object_schema, normalize_whitespace, render_prompt
from retrieval.question.query_plan import QueryPlan
from retrieval.question.stated_filters import MAX_TAGS, StatedFilters
from retrieval.ranking.candidate_retrieval import ChannelCandidates, choose_channels
from retrieval.ranking.channels.graph_server import KEYS_PARAMETER
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from retrieval.ranking.relevance import RelevanceDecision
from retrieval.redaction import MASK
from schemas.channels import CHANNELS, Channel, GraphProfile
from schemas.errors import AnabranchError, InvalidRequest
from schemas.planning import INTENTS, Intent, RouteProfile
from schemas.ports.engines import ChatModel
from schemas.ports.graph import GraphQuery, ParameterName
from schemas.ports.search import IndexSnapshot
from schemas.questions import Filters, QueryRequest, Route, RouteMode, SearchRequest, has_word

DEFAULT_ROUTE_PROFILE = RouteProfile()
_HYBRID_REASONS: Mapping[Intent, str] = {
    "comparison": "a comparison needs several passages",
    "counting": "counting needs several passages",
    "why": "a reason may stand elsewhere than its effect",
    "scenario": "a scenario combines conditions",
}
# A statement ("A is linked to B by …") is searched for its passage, not for what links its names.
_ASKS_FOR_RELATION = re.compile(r"\?\s*\Z|\b(?:between|entre|zwischen)\b", re.I)


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """A route by rules, and whether they are sure of it."""

    route: Route
    is_sure: bool = True


def choose_route(
    request: SearchRequest,
    plan: QueryPlan,
    profile: RouteProfile = DEFAULT_ROUTE_PROFILE,
    *,
    is_named: bool = True,
) -> RoutingDecision:
    """Choose the route by the request's mode, or by rules when the mode is `auto`.

    A relation between two names goes to the graph alone. One fact goes to the other channels when
    it names nothing that the index knows (`is_named`). Everything else goes to all channels.
    """
    if request.mode != "auto":
        reason = f"the request sets mode {request.mode}"
        return RoutingDecision(Route(mode=request.mode, decided_by="request", reason=reason))
    names = _list_distinct_names(plan.written_names)
    if plan.intent == "relation":
        if len(names) >= 2 and _ASKS_FOR_RELATION.search(plan.question):
            return RoutingDecision(_route("graph", f"relation between {names[0]} and {names[1]}"))
        return RoutingDecision(
            _route("hybrid", "a relation, but no question about two names"), is_sure=False
        )
    if profile.vector and plan.intent == "factoid" and not is_named:
        return RoutingDecision(_route("vector", "one fact about nothing that the graph knows"))
    return RoutingDecision(
        _route("hybrid", _HYBRID_REASONS.get(plan.intent, "no rule selects a single mode")),
        # A statement that names several things may ask for what is between them.
        is_sure=plan.intent != "other" or len(names) < 2,
    )


def _list_distinct_names(written: Sequence[str]) -> list[str]:
    """Return the names that hold no other: "Does Acme Corp" is also written as "Acme Corp"."""
    return [
        name for name in written if not any(other != name and other in name for other in written)
    ]


def _route(mode: RouteMode, reason: str) -> Route:
    return Route(mode=mode, decided_by="rules", reason=reason)


async def drop_graph(query: QueryContext, snapshot: IndexSnapshot, route: Route) -> Route:
    """Return the route without the graph when that knows no name of a question for one fact."""
    graph = query.profile.get_channel("graph")
    is_open = route.mode == "hybrid" and query.request.channels is None and graph.enabled
    if not is_open or query.plan.intent != "factoid" or not query.profile.route.vector:
        return route
    try:
        async with asyncio.timeout(graph.timeout_s):
            names = list(query.plan.names)
            is_named = bool(names and await snapshot.link_entities(query.caller.tenant, names))
    # The graph channel reports the failure.
    except (AnabranchError, TimeoutError):
        return route
    return choose_route(query.request, query.plan, query.profile.route, is_named=is_named).route


def escalate_query(
    route: Route,
    query: QueryContext,
    relevance: RelevanceDecision,
    candidates: ChannelCandidates,
    goal: Literal["ranking", "results", "answer"],
) -> tuple[QueryContext, Route] | None:
    """Return the query and route of a second search when the first found too little, or None.

    It searches all channels for more candidates. What the request itself sets is final, and a
    route is escalated once. Filters that only the question states are dropped where they leave
    nothing to answer from. Where all channels were searched without them, only an answer is worth
    the wait, and only if a channel may have more.
    """
    profile, request, plan = query.profile.route, query.request, query.plan
    is_final = request.mode != "auto" or request.channels is not None or route.escalated_from
    is_weak = relevance.refused or (profile.escalate == "unsure" and not relevance.is_confident)
    if profile.escalate == "never" or is_final or not is_weak:
        return None
    dropped = plan.stated if relevance.refused else None
    if route.mode == "hybrid" and dropped is None:
        is_exhausted = candidates.complete.issuperset(candidates.traces)
        if goal != "answer" or profile.widen == 1 or is_exhausted or not plan.has_topic:
            return None
    wordings = f" with {dropped.quoted_wordings or 'filters'}" if dropped else ""
    wider_plan = plan
    if dropped and plan.unfiltered:
        wider_plan = replace(plan.unfiltered, dropped=dropped)
    wider_route = Route(
        mode="hybrid",
        decided_by="rules",
        reason=f"{route.mode} alone{wordings}: {relevance.reason}",
        escalated_from=route.mode,
    )
    return replace(query, plan=replace(wider_plan, widen=profile.widen)), wider_route


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


MAX_ROWS = 1_000
MAX_PARAMETERS = 8


class _Parameter(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: ParameterName
    value: Annotated[str, Field(max_length=1_000)]


class _CypherReply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cypher: str
    parameters: list[_Parameter] = Field(max_length=MAX_PARAMETERS)


_CYPHER_SCHEMA = build_object_schema(
    {
        "cypher": _TEXT,
        "parameters": {
            "type": "array",
            "items": build_object_schema({"name": _TEXT, "value": _TEXT}),
        },
    }
)


async def write_cypher_by_model(
    query: QueryContext, resources: RetrievalResources, route: Route
) -> tuple[GraphQuery | None, ModelUse | None]:
    """Return the checked query of the profile's model, or None with the failure."""
    profile = GraphProfile.model_validate(query.profile.get_channel("graph"))
    planner = resources.planner
    is_wanted = (
        profile.backend == "bolt"
        and profile.model == "default"
        and profile.strategy not in ("entity_search", "pagerank")
        and query.plan.intent == "relation"
        and "graph" in choose_channels(route, query.request, query.profile)
    )
    # A caller who is limited to readers is served by the tables.
    can_run = resources.graph is not None and query.caller.readers is None
    # The last call that the profile allows is left to the answer.
    if not (is_wanted and can_run and planner and query.budget.count_calls_left("cypher") > 1):
        return None, None
    prompt = render_prompt("cypher", profile.prompt, query.plan.language)
    user = format_question(query, {"names": list(query.plan.written_names[:MAX_NAMES])})
    reply, use = await request_reply(
        "cypher", planner, prompt, user, _CYPHER_SCHEMA, _CypherReply, profile.model_timeout_s
    )
    if reply is None or not reply.cypher:
        return None, use
    try:
        return _check_reply(reply), use
    except InvalidRequest as error:
        return None, replace(use, failure=error.detail)


def _check_reply(reply: _CypherReply) -> GraphQuery:
    """Raise InvalidRequest for a query that must not run, or cannot."""
    values: Mapping[str, Any] = {item.name: item.value for item in reply.parameters}
    if KEYS_PARAMETER in values:
        raise InvalidRequest(f"It sets ${KEYS_PARAMETER}, which is given.")
    checked = check_cypher(reply.cypher, max_rows=MAX_ROWS)
    check_parameters(checked, {*values, KEYS_PARAMETER})
    try:
        return GraphQuery(cypher=reply.cypher, parameters=dict(values))
    except ValidationError as error:
        raise InvalidRequest("It is too long.") from error
