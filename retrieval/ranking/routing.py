"""Choose the channels of a question: by the request, by rules, or by a model when those are unsure.

A route that the request did not set is widened at most once, when it finds too little.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from retrieval.question.query_plan import QueryPlan
from retrieval.ranking.candidate_retrieval import ChannelCandidates
from retrieval.ranking.query_context import QueryContext
from retrieval.ranking.relevance import RelevanceDecision
from schemas.errors import AnabranchError
from schemas.planning import Intent, RouteProfile
from schemas.ports.search import IndexSnapshot
from schemas.questions import Route, RouteMode, SearchRequest

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
