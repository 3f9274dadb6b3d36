"""Callers as authentication would establish them."""

from __future__ import annotations

from schemas.principals import Principal


def make_caller(
    tenant: str = "default", *, name: str = "local", readers: tuple[str, ...] | None = None
) -> Principal:
    return Principal(name, tenant, "operator", readers)


LOCAL_CALLER = make_caller()
