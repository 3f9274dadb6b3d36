"""Render the prompts of a profile; the shipped templates are in `retrieval/prompts`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Literal

from schemas.errors import AnabranchError
from schemas.ids import sha256_hex
from schemas.ports.engines import ChatOptions
from schemas.prompts import PromptProfile

# Includes bidirectional marks, which make text look different from what it says.
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)

Extension = Literal["facts", "graph", "retry", "search"]
PromptName = (
    Extension | Literal["answer", "cypher", "judge", "plan", "route", "standalone", "summary"]
)


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
    template = profile.template or _read_template(name)
    language = profile.language or language
    system = template.replace("{language}", f" ({language})" if language else "")
    return Prompt(
        f"{profile.role}\n\n{system}" if profile.role else system,
        ChatOptions(profile.model, profile.temperature, profile.max_tokens),
    )


def extend_prompt(prompt: Prompt, name: Extension) -> Prompt:
    """Return the prompt with further rules: how to use facts or the graph, stricter ones, or when
    to ask for another search.
    """
    return replace(prompt, system=f"{prompt.system}\n\n{_read_template(name)}")


def _read_template(name: PromptName) -> str:
    return (files("retrieval") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def describe_failure(error: AnabranchError | TimeoutError, timeout_s: float) -> str:
    """Return why a model gave no usable reply."""
    if isinstance(error, AnabranchError):
        return error.detail
    return f"timed out after {timeout_s:g} s"


def build_object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object in strict form: every property required, no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def normalize_whitespace(text: str, max_characters: int | None = None) -> str:
    """Replace control characters and line breaks by spaces; keep at most `max_characters`."""
    return " ".join(CONTROL_CHARACTERS.sub(" ", text).split())[:max_characters]
