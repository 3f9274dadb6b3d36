"""Role, problems and audited action of each operation, declared at its route."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from api.dependencies import get_caller, get_services
from schemas.errors import AnabranchError, Forbidden, TransientError
from schemas.principals import Role

PUBLIC: Final = None
"""No credential: probes contain no tenant data, and signed links are credentials themselves."""
EndpointT = TypeVar("EndpointT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Operation:
    role: Role | None
    """The lowest role that may call it; each role includes those before it."""
    problems: str
    """Statuses, each followed by its codes, besides those that every operation may answer."""
    audit: tuple[str, str] | None
    """Action and subject, which is filled from the response body and the path parameters."""

    def list_problems(self) -> Iterator[tuple[str, str]]:
        """Yield each status with its codes."""
        status, codes = "", list[str]()
        # The final 0 flushes the codes of the last status.
        for word in (*self.problems.split(), "0"):
            if not word.isdecimal():
                codes.append(f"`{word}`")
                continue
            if codes:
                yield status, ", ".join(codes)
            status, codes = word, []


def operation(
    role: Role | None, *, problems: str = "", audit: tuple[str, str] | None = None
) -> Callable[[EndpointT], EndpointT]:
    """Declare the operation of a route, below the decorator of its path.

    The service of API keys records its own actions, in the transaction that changes a key.
    """

    def declare(endpoint: EndpointT) -> EndpointT:
        endpoint.operation = Operation(role, problems, audit)  # type: ignore[attr-defined]
        return endpoint

    return declare


class OperationRoute(APIRoute):
    """Check the role first, and record an audited action before the response is sent."""

    @property
    def operation(self) -> Operation:
        """Raises AttributeError for a route without one, so that none is open by accident."""
        declared: Operation = self.endpoint.operation  # type: ignore[attr-defined]
        return declared

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        action = self.operation.audit
        if action is None:
            return handle

        async def handle_and_record(request: Request) -> Response:
            try:
                response = await handle(request)
            # Refused requests change nothing.
            except (Forbidden, RequestValidationError):
                raise
            except Exception as error:
                code = error.code if isinstance(error, AnabranchError) else "BUG"
                # The caller must see the error of the action even when the log cannot record it.
                with suppress(TransientError):
                    await _record_action(request, action, {}, code)
                raise
            body, request_body = json.loads(bytes(response.body)), await request.body()
            is_dry_run = bool(request_body) and json.loads(request_body).get("dry_run") is True
            # The action has happened: if it cannot be recorded, the response is an error.
            if not is_dry_run:
                await _record_action(
                    request, action, body, "refused" if body.get("promoted") is False else "done"
                )
            return response

        return handle_and_record


async def _record_action(
    request: Request, audit: tuple[str, str], body: Mapping[str, Any], outcome: str
) -> None:
    action, subject_template = audit
    subject: str | None
    try:
        subject = subject_template.format_map({**body, **request.path_params})
    except KeyError:
        # An action that failed has no response body to complete its subject.
        subject = ", ".join(map(str, request.path_params.values())) or None
    services, caller = await get_services(request), await get_caller(request)
    await services.audit.record(caller, action, subject, request.scope.get("request_id"), outcome)


async def require_role(request: Request) -> None:
    """Raises Forbidden when the caller's role does not suffice."""
    required_role = request.scope["route"].operation.role
    if required_role is PUBLIC:
        return
    principal = await get_caller(request)
    if not principal.has_role(required_role):
        raise Forbidden(
            f"This operation requires the role {required_role!r}; the credential has "
            f"{principal.role!r}.",
            code="FORBIDDEN_ROLE",
            remedy=(
                f"Use a credential with the role {required_role!r}; an administrator creates one "
                "with `anabranch keys create`."
            ),
        )
    # An operator acts for another tenant, which that tenant's audit trail shows.
    if principal.home_tenant is not None:
        services = await get_services(request)
        await services.audit.record_visit(principal, request.scope.get("request_id"))
