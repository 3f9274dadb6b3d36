"""Option for a number of events per second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from schemas.replay_requests import MAX_EVENTS_PER_S, MIN_EVENTS_PER_S


def _parse_rate(_: object, tokens: Sequence[Token]) -> float:
    return float(tokens[0].value.removesuffix("/s"))


Rate = Annotated[
    float | None,
    Parameter(converter=_parse_rate, validator=Number(gte=MIN_EVENTS_PER_S, lte=MAX_EVENTS_PER_S)),
]
