"""Aliases of entities: those that people give, and those that documents state."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

MAX_ALIASES = 100
"""Most aliases that people may give to one entity."""
ABBREVIATION, DEFINED_TERM = "abbreviation", "defined_term"
"""Properties of claims that state an alias, as in `European Central Bank (ECB)` and
`Acme Robotics GmbH (the "Licensor")`. A defined term holds only in its document.
"""


def _check_alias(alias: str) -> str:
    if sum(character.isalnum() for character in alias) < 2:
        raise ValueError("an alias needs at least two letters or digits")
    return alias


Alias = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$"),
    AfterValidator(_check_alias),
]


class EntityAmendment(BaseModel):
    """Changes to the aliases of an entity."""

    model_config = ConfigDict(extra="forbid")

    add_aliases: list[Alias] = Field(
        [],
        max_length=MAX_ALIASES,
        description=(
            "Names to add. A question that uses one is linked to the entity. Case, accents, "
            "punctuation and a leading `the`, `a` or `an` do not matter."
        ),
    )
    remove_aliases: list[Alias] = Field(
        [], max_length=MAX_ALIASES, description="Added or found aliases to remove."
    )
