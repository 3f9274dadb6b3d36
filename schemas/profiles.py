"""A profile: how questions are answered. Files in `profiles/` are validated by these models; nothing here changes what is indexed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.values import Value


class ChannelProfile(Value):
    enabled: bool = True
    k: int = Field(50, ge=1, le=1000, title="Candidates", description="taken from this channel")
    timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out", description="after which only this channel is lost")


class LexicalProfile(ChannelProfile):
    budget: int = Field(5000, ge=1, title="Candidate budget", description="chunks scored before conjunctions take over")


class GraphProfile(ChannelProfile):
    hops: int = Field(2, ge=1, le=3)
    fan_out: int = Field(25, ge=1, le=200, description="edges followed from a node, heaviest first")
    decay: float = Field(0.5, gt=0, le=1)


class FusionProfile(Value):
    method: Literal["zscore", "rrf"] = "zscore"
    lexical: float = Field(1.0, ge=0, le=10)
    semantic: float = Field(1.0, ge=0, le=10)
    graph: float = Field(0.5, ge=0, le=10)
    rrf_k: int = Field(60, ge=1, le=1000)
    bigram: float = Field(0.3, ge=0, le=2, description="weight of adjacent word pairs, added to the lexical score")
    per_document: int | None = Field(None, ge=1, description="at most this many results of one document")
    near_duplicates: bool = Field(True, description="fold near-equal passages under the best one")


class RerankProfile(Value):
    reranker: Literal["default", "none"] = "default"
    weight: float = Field(2.0, ge=0, le=10, description="of an added reranker's z-score")
    parents: int = Field(50, ge=1, le=200, description="offered to the reranker")
    keep: int = Field(10, ge=1, le=100)
    timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out", description="after which the fused order stands")
    expand: Literal["max", "sum"] = "max"


class AnswerProfile(Value):
    refuse: bool = True
    threshold: float | None = Field(None, description="in place of the reranker's own")
    trim: float = Field(0.6, ge=0, le=1, description="contexts below this share of the best score are left out")
    context_tokens: int = Field(4000, ge=100, le=200_000)
    model: Literal["default", "extractive"] = "default"
    timeout_s: float = Field(120.0, gt=0)


class Profile(Value):
    name: str = "default"
    lexical: LexicalProfile = LexicalProfile(k=100)
    semantic: ChannelProfile = ChannelProfile(k=100)
    graph: GraphProfile = GraphProfile(k=50)
    fusion: FusionProfile = FusionProfile()
    rerank: RerankProfile = RerankProfile()
    answer: AnswerProfile = AnswerProfile()
