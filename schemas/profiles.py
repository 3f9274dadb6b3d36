"""Profiles: how questions are answered.

Files in `profiles/` are validated by these models. A profile never affects what is indexed.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.values import Value


class ChannelProfile(Value):
    """Settings of one retrieval channel."""

    enabled: bool = Field(True, description="Search this channel.")
    k: int = Field(
        50,
        ge=1,
        le=1000,
        title="Candidates",
        description="Maximum number of candidates from this channel.",
    )
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=120,
        title="Time-out",
        description="Seconds after which the channel is abandoned; the other channels are unaffected.",
    )


class LexicalProfile(ChannelProfile):
    """Settings of the lexical channel."""

    budget: int = Field(
        5000,
        ge=1,
        title="Candidate budget",
        description="Chunks to score before frequent terms are only searched in conjunctions.",
    )


class GraphProfile(ChannelProfile):
    """Settings of the graph channel."""

    hops: int = Field(
        2, ge=1, le=3, description="Maximum distance from an entity that the question names."
    )
    fan_out: int = Field(
        25, ge=1, le=200, description="Edges to follow from each node, heaviest first."
    )
    decay: float = Field(
        0.5, gt=0, le=1, description="Factor by which a score shrinks with each hop."
    )


class FusionProfile(Value):
    """How the channels' candidates are combined."""

    method: Literal["zscore", "rrf"] = Field(
        "zscore", description="Combine standardized scores, or reciprocal ranks (RRF)."
    )
    lexical: float = Field(1.0, ge=0, le=10, description="Weight of the lexical channel.")
    semantic: float = Field(1.0, ge=0, le=10, description="Weight of the semantic channel.")
    graph: float = Field(0.5, ge=0, le=10, description="Weight of the graph channel.")
    rrf_k: int = Field(60, ge=1, le=1000, description="Constant k of reciprocal rank fusion.")
    bigram: float = Field(
        0.3, ge=0, le=2, description="Weight of adjacent word pairs, added to the lexical score."
    )
    per_document: int | None = Field(
        None, ge=1, description="Maximum number of results from one document."
    )
    near_duplicates: bool = Field(
        True, description="Fold nearly identical passages into the best one."
    )


class RerankProfile(Value):
    """How the fused candidates are reranked."""

    reranker: Literal["default", "none"] = Field("default", description="Reranker to use.")
    weight: float = Field(
        2.0,
        ge=0,
        le=10,
        description="Weight of the reranker's standardized score, for a reranker whose score is added.",
    )
    parents: int = Field(50, ge=1, le=200, description="Passages to rerank.")
    keep: int = Field(10, ge=1, le=100, description="Passages to keep after reranking.")
    timeout_s: float = Field(
        10.0,
        gt=0,
        le=120,
        title="Time-out",
        description="Seconds after which the fused order is used instead.",
    )
    expand: Literal["max", "sum"] = Field(
        "max", description="How the scores of child chunks combine into the score of their parent."
    )


class AnswerProfile(Value):
    """How the answer is written."""

    refuse: bool = Field(True, description="Refuse questions that the documents do not answer.")
    threshold: float | None = Field(
        None,
        description="Score below which a question is refused, instead of the reranker's own threshold.",
    )
    trim: float = Field(
        0.6, ge=0, le=1, description="Omit passages that score below this share of the best one."
    )
    context_tokens: int = Field(
        4000, ge=100, le=200_000, description="Maximum tokens of passages to read."
    )
    model: Literal["default", "extractive"] = Field(
        "default", description="Use the configured chat model, or only extract sentences."
    )
    timeout_s: float = Field(120.0, gt=0, description="Seconds to wait for the answer.")


class Profile(Value):
    """Settings for answering questions."""

    name: str = Field("default", description="Name of the profile.")
    lexical: LexicalProfile = LexicalProfile(k=100)
    semantic: ChannelProfile = ChannelProfile(k=100)
    graph: GraphProfile = GraphProfile(k=50)
    fusion: FusionProfile = FusionProfile()
    rerank: RerankProfile = RerankProfile()
    answer: AnswerProfile = AnswerProfile()
