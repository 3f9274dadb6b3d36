"""Aliases of entities, and corrections of what documents state about them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from schemas.models import Request

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


class EntityAmendment(Request):
    """Changes to the aliases and the type of an entity."""

    add_aliases: list[Alias] = Field([], max_length=MAX_ALIASES)
    """Names to add. A question that uses one is linked to the entity. Case, accents, punctuation
    and a leading `the`, `a` or `an` do not matter.
    """
    remove_aliases: list[Alias] = Field([], max_length=MAX_ALIASES)
    """Added or found aliases to remove."""
    type: EntityType | None = None
    """Type to set, such as ORG. Null: the type that documents state."""


class EntityMergeRequest(Request):
    """The entity that another one becomes part of."""

    into: UUID = Field(description="Id of the entity, which gives its name and its type.")


class EntitySplitRequest(Request):
    """The part of an entity that becomes an entity of its own again."""

    part: str = Field(min_length=1, max_length=1024)
    """Id of the part, or a name whatever its case."""
