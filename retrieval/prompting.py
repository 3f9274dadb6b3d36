"""Render the prompts of a profile; the shipped templates are in `retrieval/prompts`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from schemas.ids import sha256_hex
from schemas.ports.engines import ChatOptions
from schemas.prompts import PromptProfile

PromptName = Literal["answer"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system message with the options of its request. `sha256` identifies the message."""

    system: str
    options: ChatOptions

    @property
    def sha256(self) -> str:
        return sha256_hex(self.system.encode())


def render_prompt(name: PromptName, profile: PromptProfile, language: str | None = None) -> Prompt:
    """Render the prompt. `language` is the question's, which the profile's replaces."""
    template = profile.template or (files("retrieval") / "prompts" / f"{name}.md").read_text(
        encoding="utf-8"
    )
    language = profile.language or language
    system = template.replace("{language}", f" ({language})" if language else "")
    return Prompt(
        f"{profile.role}\n\n{system}" if profile.role else system,
        ChatOptions(profile.model, profile.temperature, profile.max_tokens),
    )
