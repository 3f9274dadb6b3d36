"""Section `answer` of profiles: which passages are read, when and how the answer is written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.prompts import PromptProfile
from schemas.values import Value


class RelevanceProfile(Value):
    """When passages are relevant to the question, by rules (`retrieval.ranking.relevance`).

    The rules decide where no probability is estimated: without token states in the index, and in a
    profile with a `threshold` of its own.
    """

    passages: int = Field(
        3, ge=1, le=20, description="Best passages to judge; one relevant passage is enough."
    )
    # Measured on our own queries: 45 % of those that the other language answers are refused, and
    # 31 % of the near misses pass. Lower values admit near misses as fast as answers.
    foreign_factor: float = Field(
        0.85,
        ge=0,
        le=1,
        description="Factor on the threshold for a passage in another language than the question.",
    )
    usual_coverage: float = Field(
        0.75,
        ge=0,
        le=1,
        description=(
            "Share of the question's idf mass in a passage at which the reranker's threshold "
            "applies unchanged; it rises below and falls above."
        ),
    )
    word_weight: float = Field(
        0.5,
        ge=0,
        le=2,
        description=(
            "Change of the threshold per share of the idf mass. 0 judges by the reranker alone."
        ),
    )
    few_keywords: int = Field(
        4,
        ge=1,
        le=64,
        description=(
            "Topical words of a question up to which `word_weight` is full. It shrinks in "
            "proportion for longer questions, which are likely to be paraphrased."
        ),
    )
    max_rise: float = Field(
        0.15, ge=0, le=2, description="Most that missing words raise the threshold."
    )
    min_coverage: float = Field(
        0.25,
        ge=0,
        le=1,
        description=(
            "Share of the question's idf mass that a passage must hold where nothing is reranked."
        ),
    )
    clear_factor: float = Field(
        1.2,
        ge=1,
        le=10,
        description=(
            "Multiple of the threshold from which on the best passage is a clear match. Below, the "
            "confidence is low."
        ),
    )


class ContextProfile(Value):
    """Which of the ranked passages are read for the answer."""

    trim: float = Field(
        0.6, ge=0, le=1, description="Omit passages that score below this share of the best one."
    )
    context_tokens: int = Field(
        4000, ge=100, le=200_000, description="Maximum tokens of passages to read."
    )
    sources_per_quote: int = Field(
        5,
        ge=1,
        le=50,
        description="Maximum number of documents to cite for one sentence that several hold.",
    )


class GenerationProfile(Value):
    """How the answer is written, and when it is refused."""

    refuse: bool = Field(True, description="Refuse questions that the documents do not answer.")
    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description=(
            "Rerank score below which a question is refused, instead of by the estimated "
            "probability or the reranker's own threshold."
        ),
    )
    min_confidence: float | None = Field(
        None,
        ge=0,
        le=1,
        description=(
            "Estimated probability of a right answer below which a question is refused, instead of "
            "the measured default."
        ),
    )
    calibrated: bool = Field(
        True,
        description=(
            "Use the thresholds that `anabranch calibrate` learned for the generation, instead of "
            "`trim` and of the measured default of `min_confidence`."
        ),
    )
    relevance: RelevanceProfile = Field(
        RelevanceProfile(), description="Rules for refusal without an estimated probability."
    )
    max_quotes: int = Field(
        3,
        ge=1,
        le=20,
        description=(
            "Maximum number of sentences that a quoted answer holds, besides those that conflict."
        ),
    )
    # Measured: at 2 the quotes hold 99 % of the answers that they hold without a limit, in two
    # thirds of the words.
    quote_distance: float = Field(
        2.0,
        ge=0,
        le=20,
        description="Distance in score from the best sentence up to which further ones are quoted.",
    )
    min_support: float = Field(
        0.4,
        ge=0,
        le=1,
        description=(
            "Share of the words of a written sentence that its citations must hold, or it is "
            "removed. Of a passage in another language, only numbers are compared."
        ),
    )
    quotes_per_sentence: int = Field(
        2,
        ge=1,
        le=10,
        description="Maximum number of quotes that support one written sentence together.",
    )
    conflict_distance: float = Field(
        8.0,
        ge=0,
        le=20,
        description=(
            "Distance in score from the best sentence up to which sentences of other documents are "
            "compared with it for conflicting numbers and dates. 0 compares none."
        ),
    )
    model: Literal["default", "extractive"] = Field(
        "default", description="Use the configured chat model, or only extract sentences."
    )
    further_searches: int = Field(
        1,
        ge=0,
        le=3,
        description=(
            "Searches that the chat model may ask for, in its own words, when the passages do not "
            "suffice. Each costs another call of the model."
        ),
    )
    timeout_s: float = Field(
        120.0, gt=0, allow_inf_nan=False, description="Seconds to wait for the answer."
    )
    prompt: PromptProfile = Field(PromptProfile(), description="Prompt of the chat model.")


class AnswerProfile(GenerationProfile, ContextProfile):
    """Which passages are read, and how the answer is written."""
