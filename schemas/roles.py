from __future__ import annotations

from typing import Literal

Role = Literal["reader", "writer", "admin", "operator"]
ROLES: tuple[Role, ...] = ("reader", "writer", "admin", "operator")
"""In ascending order: each role includes the permissions of the roles before it. Only an operator may act
for another tenant.
"""
