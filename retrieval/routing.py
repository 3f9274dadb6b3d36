"""Choose the channels for a query."""

from __future__ import annotations

import re
from typing import Literal

from retrieval.query_plan import QueryPlan
from schemas.profiles import Profile
from schemas.questions import CHANNELS, Channel, Route, SearchRequest

RouteMode = Literal["vector", "graph", "hybrid"]

# `vector` matches passages by words and meaning, `graph` by entity names, `hybrid` by all three.
MODE_CHANNELS: dict[RouteMode, tuple[Channel, ...]] = {
    "vector": ("lexical", "semantic"),
    "graph": ("graph",),
    "hybrid": CHANNELS,
}

_RELATIONAL_QUESTION = re.compile(
    r"\b(relation(?:ship)?s? between|connect(?:ion|ed|s) (?:between|to|with)|linked (?:to|with)|rela[cç][aãoõ]\w* entre|ligad[oa]s? a|relaci[oó]n entre|lien entre|beziehung zwischen)\b",
    re.IGNORECASE,
)


def choose_route(request: SearchRequest, plan: QueryPlan) -> Route:
    """Choose the route by the request's mode, or by rules when the mode is `auto`.

    Two names and a relational phrase go to the graph alone; everything else goes to all channels.
    """
    if request.mode != "auto":
        return Route(
            mode=request.mode, decided_by="request", reason=f"the request sets mode {request.mode}"
        )
    if _RELATIONAL_QUESTION.search(plan.question) and len(plan.written_names) >= 2:
        return Route(
            mode="graph",
            decided_by="rules",
            reason=f"relation between {plan.written_names[0]} and {plan.written_names[1]}",
        )
    return Route(mode="hybrid", decided_by="rules", reason="no rule selects a single mode")


def choose_channels(
    chosen_route: Route, request: SearchRequest, profile: Profile
) -> tuple[Channel, ...]:
    """Return the requested channels, or those of the mode, without channels that the profile
    disables.
    """
    requested = request.channels or MODE_CHANNELS[chosen_route.mode]
    enabled = {
        "lexical": profile.lexical.enabled,
        "semantic": profile.semantic.enabled,
        "graph": profile.graph.enabled,
    }
    return tuple(channel for channel in CHANNELS if channel in requested and enabled[channel])


def escalate_route(chosen_route: Route, reason: str) -> Route | None:
    """Return the route to all channels when a rule, not the request, had chosen fewer; otherwise
    None.
    """
    if chosen_route.decided_by == "request" or chosen_route.mode == "hybrid":
        return None
    return Route(mode="hybrid", decided_by="rules", reason=reason, escalated_from=chosen_route.mode)
