"""Names of languages: BCP 47 tags (RFC 5646) whose language is in the IANA registry, which has those of ISO 639."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


def check_language(tag: str) -> str:
    """Raises ValueError for a tag of no known language."""
    from langcodes import tag_is_valid

    if "_" in tag or not tag_is_valid(tag):
        raise ValueError(f"{tag!r} is not the tag of a language; write BCP 47, such as en, pt-BR or zh-Hant")
    return tag


Language = Annotated[str, Field(max_length=35, description="BCP 47"), AfterValidator(check_language)]
