"""How questions are planned and routed: intents, and the settings of a profile."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from schemas.channels import Channel
from schemas.prompts import PromptProfile
from schemas.values import Value

Intent = Literal[
    "factoid", "lookup", "relation", "comparison", "counting", "why", "scenario", "other"
]
WeightFactor = Annotated[float, Field(ge=0, le=10)]
CandidateCount = Annotated[int, Field(ge=1, le=1000)]
INTENTS: tuple[Intent, ...] = get_args(Intent)


class IntentProfile(Value):
    """How much each channel counts for questions of one intent."""

    weights: dict[Channel, WeightFactor] = {}
    """Factors, from 0 to 10, on the weights of the channels in fusion."""
    k: dict[Channel, CandidateCount] = {}
    """Candidates of a channel, from 1 to 1000, instead of the channel's own."""


class PlanProfile(Value):
    """How a question is analyzed before it is searched."""

    model: Literal["rules", "default"] = "rules"
    """Plan by local rules, or by the chat model of `PLAN__` where one is configured. A model that
    fails costs only its time: the rules' plan stands.
    """
    timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out")
    """Seconds to wait for the model's plan."""
    filters: bool = True
    """Restrict the search to dates and tags that the question states about documents (`documents
    from 2024`, `#tax`).
    """
    rewrite: Literal["rules", "default"] = "default"
    """Fill in a question of a conversation by local rules, or by the chat model of `PLAN__` where
    one is configured. If the model fails, the rules decide.
    """
    intents: dict[Intent, IntentProfile] = {}
    """Weights and candidates of the channels by intent of the question."""
    prompt: PromptProfile = Field(PromptProfile(), description="Prompt of the planning model.")


class RouteProfile(Value):
    """How the channels are chosen when the request's mode is `auto`."""

    vector: bool = True
    """Search without the graph when a question asks for one fact and names no entity and no
    document of the index.
    """
    model: Literal["rules", "default"] = "default"
    """When the rules are unsure: search all channels, or ask the chat model of `ROUTE__` where one
    is configured.
    """
    timeout_s: float = Field(5.0, gt=0, le=120, title="Time-out")
    """Seconds to wait for the model's route."""
    escalate: Literal["refused", "unsure", "never"] = "refused"
    """When to search once more, in all channels, after a route that the request did not set: when
    the question would be refused, when the answer has low confidence too, or never.
    """
    widen: float = Field(2.0, ge=1, le=10)
    """Factor on the candidates of each channel in that search. At 1, a search of all channels is
    not repeated.
    """
    prompt: PromptProfile = Field(PromptProfile(), description="Prompt of the routing model.")
