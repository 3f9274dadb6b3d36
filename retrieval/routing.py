"""Route: which channels a question goes to."""

from __future__ import annotations

import re
from typing import Literal

from retrieval.query_plan import QueryPlan
from schemas.profiles import Profile
from schemas.questions import CHANNELS, Channel, Route, SearchRequest

RouteMode = Literal["vector", "graph", "hybrid"]

MODE_CHANNELS: dict[RouteMode, tuple[Channel, ...]] = {"vector": ("lexical", "semantic"), "graph": ("graph",), "hybrid": CHANNELS}
"""`vector` reads passages by their words and meaning, `graph` by the names in them, `hybrid` by all three."""

_RELATIONAL_QUESTION = re.compile(
    r"\b(relation(?:ship)?s? between|connect(?:ion|ed|s) (?:between|to|with)|linked (?:to|with)|rela[cç][aãoõ]\w* entre|ligad[oa]s? a|relaci[oó]n entre|lien entre|beziehung zwischen)\b",
    re.IGNORECASE,
)


def choose_route(request: SearchRequest, plan: QueryPlan) -> Route:
    """By the request, else by rules: two names and a word for what joins them ask the graph, everything else asks all channels."""
    if request.mode != "auto":
        return Route(mode=request.mode, decided_by="request", reason=f"mode {request.mode} was asked for")
    if _RELATIONAL_QUESTION.search(plan.question) and len(plan.written_names) >= 2:
        return Route(mode="graph", decided_by="rules", reason=f"asks what joins {plan.written_names[0]} and {plan.written_names[1]}")
    return Route(mode="hybrid", decided_by="rules", reason="nothing speaks for a single way of searching")


def choose_channels(chosen_route: Route, request: SearchRequest, profile: Profile) -> tuple[Channel, ...]:
    """The channels to ask: those the request names, else those of the mode; never one that the profile switches off."""
    requested = request.channels or MODE_CHANNELS[chosen_route.mode]
    enabled = {"lexical": profile.lexical.enabled, "semantic": profile.semantic.enabled, "graph": profile.graph.enabled}
    return tuple(channel for channel in CHANNELS if channel in requested and enabled[channel])


def escalate_route(chosen_route: Route, reason: str) -> Route | None:
    """The same question to all channels, if a rule (not the person) had chosen fewer."""
    if chosen_route.decided_by == "request" or chosen_route.mode == "hybrid":
        return None
    return Route(mode="hybrid", decided_by="rules", reason=reason, escalated_from=chosen_route.mode)
