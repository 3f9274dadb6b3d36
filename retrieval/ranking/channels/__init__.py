"""The retrieval channels. Module `<name>` has the function `retrieve` of channel `<name>`.

`graph_server` is the part of channel `graph` that asks a graph server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.channels import ChannelProfile
from schemas.ports.engines import QueryEmbedding
from schemas.ports.graph import GraphQuery, GraphServer
from schemas.ports.search import EntitySeed, Hit, IndexSnapshot, LexicalHits
from schemas.principals import ReaderScope
from schemas.questions import Filters


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """Input of one channel. `k` is the maximum number of candidates.

    `names` maps normalized entity names to their weight in the question. `embed` is available to
    channels that are declared to need the embedding. `cypher` is the chat model's query for the
    graph server.
    """

    snapshot: IndexSnapshot
    tenant: str
    question: str
    language: str | None
    names: Mapping[str, float]
    filters: Filters
    settings: ChannelProfile
    k: int
    embed: Callable[[], Awaitable[QueryEmbedding]]
    readers: ReaderScope = None
    graph_server: GraphServer | None = None
    cypher: GraphQuery | None = None


@dataclass(frozen=True, slots=True)
class ChannelOutput:
    """Candidates of a channel.

    Word pairs and the relevance check use `lexical`, traces the seeds, `served_by` and `notes`.
    """

    hits: Sequence[Hit]
    lexical: LexicalHits | None = None
    linked_seeds: Sequence[EntitySeed] = ()
    served_by: Literal["sql", "bolt", "cypher"] | None = None
    notes: Sequence[str] = ()


Retrieve = Callable[[ChannelRequest], Awaitable[ChannelOutput]]
