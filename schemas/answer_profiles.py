"""Section `answer` of profiles: which passages are read, when and how the answer is written."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.prompts import PromptProfile
from schemas.values import Value


class ContextProfile(Value):
    """Which of the ranked passages are read for the answer."""

    trim: float = Field(0.6, ge=0, le=1)
    """Omit passages that score below this share of the best one."""
    context_tokens: int = Field(4000, ge=100, le=200_000)
    """Maximum tokens of passages to read."""


class GenerationProfile(Value):
    """How the answer is written, and when it is refused."""

    refuse: bool = Field(True, description="Refuse questions that the documents do not answer.")
    threshold: float | None = Field(None, allow_inf_nan=False)
    """Rerank score below which a question is refused, instead of by the estimated probability or
    the reranker's own threshold.
    """
    min_confidence: float | None = Field(None, ge=0, le=1)
    """Estimated probability of a right answer below which a question is refused, instead of the
    measured default.
    """
    calibrated: bool = True
    """Use the thresholds that `anabranch calibrate` learned for the generation, instead of `trim`
    and of the measured default of `min_confidence`.
    """
    min_support: float = Field(0.4, ge=0, le=1)
    """Share of the words of a written sentence that its citations must hold, or it is removed. Of a
    passage in another language, only numbers are compared.
    """
    model: Literal["default", "extractive"] = "default"
    """Use the configured chat model, or only extract sentences."""
    further_searches: int = Field(1, ge=0, le=3)
    """Searches that the chat model may ask for, in its own words, when the passages do not suffice.
    Each costs another call of the model.
    """
    timeout_s: float = Field(120.0, gt=0, allow_inf_nan=False)
    """Seconds to wait for the answer."""
    prompt: PromptProfile = Field(PromptProfile(), description="Prompt of the chat model.")


class AnswerProfile(GenerationProfile, ContextProfile):
    """Which passages are read, and how the answer is written."""
