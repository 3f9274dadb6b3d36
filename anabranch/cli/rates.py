"""Events a second, as `50` or `50/s`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token
from cyclopts.validators import Number

from schemas.pace import FASTEST, SLOWEST


def _per_second(_: object, tokens: Sequence[Token]) -> float:
    return float(tokens[0].value.removesuffix("/s"))


Rate = Annotated[float | None, Parameter(converter=_per_second, validator=Number(gte=SLOWEST, lte=FASTEST))]
