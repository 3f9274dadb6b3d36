"""Language tags: BCP 47 (RFC 5646) with a language from the IANA registry, which includes ISO 639."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field


def check_language(tag: str) -> str:
    """Return the tag. Raises ValueError if it does not denote a known language."""
    from langcodes import tag_is_valid

    if "_" in tag or not tag_is_valid(tag):
        raise ValueError(
            f"{tag!r} is not a known language; use a BCP 47 tag such as en, pt-BR or zh-Hant"
        )
    return tag


Language = Annotated[
    str, Field(max_length=35, description="BCP 47 tag."), AfterValidator(check_language)
]
