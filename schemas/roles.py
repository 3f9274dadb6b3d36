"""Roles of callers."""

from __future__ import annotations

from typing import Literal

Role = Literal["reader", "writer", "admin", "operator"]
ROLES: tuple[Role, ...] = ("reader", "writer", "admin", "operator")
"""In ascending order: each role may do everything that the roles before it may do. Only an operator may act for another tenant."""
