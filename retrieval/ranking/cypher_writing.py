"""Let a chat model write Cypher for a question about a relation.

The query is checked before it becomes part of the plan, and again by the server's adapter before it
runs. A model that fails, or whose query is rejected, costs only its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engines.graph.cypher import check_cypher, check_parameters
from retrieval.prompting import build_object_schema, render_prompt
from retrieval.ranking.candidate_retrieval import choose_channels
from retrieval.ranking.channels.graph_server import KEYS_PARAMETER
from retrieval.ranking.model_planning import MAX_NAMES, ModelUse, format_question, request_reply
from retrieval.ranking.query_context import QueryContext, RetrievalResources
from schemas.channels import GraphProfile
from schemas.errors import InvalidRequest
from schemas.ports.graph import GraphQuery, ParameterName
from schemas.questions import Route

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


_TEXT = {"type": "string"}
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
