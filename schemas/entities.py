"""Aliases of entities, and corrections of what documents state about them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

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


EntityType = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$"
    ),
]


class EntityAmendment(BaseModel):
    """Changes to the aliases and the type of an entity."""

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
    type: EntityType | None = Field(
        None, description="Type to set, such as ORG. Null: the type that documents state."
    )


class EntityMergeRequest(BaseModel):
    """The entity that another one becomes part of."""

    model_config = ConfigDict(extra="forbid")

    into: UUID = Field(description="Id of the entity, which gives its name and its type.")


class EntitySplitRequest(BaseModel):
    """The part of an entity that becomes an entity of its own again."""

    model_config = ConfigDict(extra="forbid")

    part: str = Field(
        min_length=1, max_length=1024, description="Id of the part, or a name whatever its case."
    )
