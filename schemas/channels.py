"""The retrieval channels, declared once.

Profiles, fusion weights, routes and the wire derive from this list.

A new channel is a line here and a file `retrieval/ranking/channels/<name>.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from schemas.prompts import PromptProfile
from schemas.values import Value

DEFAULT_EF_SEARCH = 100


class ChannelProfile(Value):
    """Settings of one retrieval channel."""

    enabled: bool = Field(True, description="Search this channel.")
    k: int = Field(50, ge=1, le=1000, title="Candidates")
    """Maximum number of candidates from this channel."""
    timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out")
    """Seconds after which the channel is abandoned; the other channels are unaffected."""


class LexicalProfile(ChannelProfile):
    """Settings of the lexical channel."""

    budget: int = Field(5000, ge=1, title="Candidate budget")
    """Chunks to score before frequent terms are only searched in conjunctions."""


class SemanticProfile(ChannelProfile):
    """Settings of the semantic channel."""

    ef_search: int = Field(DEFAULT_EF_SEARCH, ge=10, le=1000, title="Search width")
    """Candidates that the vector index (HNSW) keeps while it searches. More find more of the
    nearest chunks and take longer. Exact searches ignore it.
    """


GraphStrategy = Literal["entity_search", "traversal", "hybrid", "pagerank"]


class GraphProfile(ChannelProfile):
    """Settings of the graph channel."""

    hops: int = Field(2, ge=1, le=3)
    """Maximum distance from an entity that the question names."""
    fan_out: int = Field(25, ge=1, le=200)
    """Edges to follow from each node, heaviest first."""
    strategy: GraphStrategy = "hybrid"
    """Chunks to find: `entity_search`, those that mention an entity that the question names;
    `traversal`, those that mention an entity at the end of a path from one; `hybrid`, both;
    `pagerank`, both, and those that mention an entity that another of them mentions, by their share
    of a random walk that restarts at the entities that the question names (personalized PageRank).
    """
    aliases: bool = True
    """Link the question to entities by the aliases that people gave them or documents state. An
    alias that no document holds is replaced by the entity's name.
    """
    fuzzy: int = Field(1, ge=0, le=2)
    """Edits by which a name in the question may differ from an entity that it is taken for. Only
    capitalized names without digits that no document holds; 0 never.
    """
    decay: float = Field(0.5, gt=0, le=1)
    """Factor by which a score shrinks with each hop; not for strategy `pagerank`."""
    backend: Literal["sql", "bolt"] = "sql"
    """Follow relations in the tables, or on the graph server of `GRAPH__BOLT_URL`. The server gets
    half of the channel's time-out; when it fails, the tables serve.
    """
    model: Literal["rules", "default"] = "rules"
    """With backend `bolt`, for questions about a relation: follow relations by the built-in Cypher,
    or run Cypher of the chat model of `PLAN__` first.
    """
    model_timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out of the model")
    """Seconds to wait for the model's Cypher."""
    prompt: PromptProfile = PromptProfile()
    """Prompt of the model that writes Cypher."""
    facts: int = Field(8, ge=0, le=50)
    """Relations and claims about the entities of the question to read with the passages, each with
    the sentence that states it. They fit into `answer.context_tokens`. 0 reads none.
    """


@dataclass(frozen=True, slots=True)
class ChannelDeclaration:
    """A channel with its default settings and its default weight in fusion.

    `mode` is the request mode that searches it; mode `hybrid` searches every channel. One whose
    default weight is 0 is searched only where a profile gives it a weight or a request names it:
    its candidates change the scores of the others even with weight 0.
    """

    name: str
    profile: ChannelProfile
    weight: float
    mode: Literal["vector", "graph"]
    needs_embedding: bool = False


CHANNEL_DECLARATIONS = (
    ChannelDeclaration("lexical", LexicalProfile(k=100), 1.0, "vector"),
    ChannelDeclaration("semantic", SemanticProfile(k=100), 1.0, "vector", needs_embedding=True),
    ChannelDeclaration("graph", GraphProfile(k=50), 0.5, "graph"),
)
CHANNELS = tuple(channel.name for channel in CHANNEL_DECLARATIONS)

if TYPE_CHECKING:
    Channel = str
else:
    Channel = Literal[CHANNELS]  # an enumeration in OpenAPI and the event schemas
