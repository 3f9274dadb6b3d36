"""Role, problems and audited action of an operation, declared at its route; checks of its input.

Input is rejected with unknown query parameters, text that Postgres cannot store and numbers that
JSON lacks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_origin

from fastapi import Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query
from fastapi.routing import APIRoute

from api.problems import invalid_json
from api.services import get_caller, get_services
from schemas.errors import AnabranchError, Forbidden, InvalidRequest, TransientError
from schemas.principals import Role

# Requests are stored inside events, which JSON libraries limit to a depth of 200 or more.
MAX_JSON_DEPTH = 100
# Names of parameters come from the client: an error quotes a few of them, shortened.
MAX_QUOTED_NAMES, MAX_QUOTED_CHARACTERS = 5, 64


def check_text(text: str, where: str) -> None:
    """Raises InvalidRequest for NUL characters and lone surrogates."""
    if "\x00" in text:
        raise InvalidRequest(
            f"{where} contains a NUL character.", remedy="Remove the NUL character."
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(
            f"{where} contains a lone surrogate.", remedy="Send valid Unicode."
        ) from None


def check_json(value: Any, where: str) -> None:
    """Check every text at any depth.

    Raises InvalidRequest also for numbers that JSON lacks but Python parses, and for nesting deeper
    than `MAX_JSON_DEPTH`.
    """
    for depth, item in _walk_json(value):
        if depth > MAX_JSON_DEPTH:
            raise InvalidRequest(
                f"{where} is nested more than {MAX_JSON_DEPTH} levels deep.",
                remedy=f"Reduce nesting to {MAX_JSON_DEPTH} levels.",
            )
        if isinstance(item, str):
            check_text(item, where)
        elif isinstance(item, float) and not math.isfinite(item):
            raise InvalidRequest(
                f"{where} contains {item}, which is not a JSON number.",
                remedy="Omit it, or send null.",
            )


def check_query_parameters(route: APIRoute, names: Sequence[str]) -> None:
    """Raises InvalidRequest for parameters that the operation lacks, and for repeated ones.

    A misspelt filter would otherwise have no effect, and of a repeated one only the last would
    count. A parameter that is a list may be repeated.
    """
    known = {
        field.alias: get_origin(field.field_info.annotation) is list
        for field in get_flat_params(route.dependant)
        if isinstance(field.field_info, Query)
    }
    if unknown := sorted(set(names) - known.keys()):
        raise InvalidRequest(
            f"Unknown query parameter {_quote_names(unknown)}.",
            code="UNKNOWN_PARAMETER",
            remedy=f"Known parameters: {', '.join(sorted(known))}."
            if known
            else "Omit it: this operation has no query parameters.",
        )
    if repeated := sorted(name for name in set(names) if names.count(name) > 1 and not known[name]):
        raise InvalidRequest(
            f"Query parameter {_quote_names(repeated)} was sent more than once.",
            code="REPEATED_PARAMETER",
            remedy="Send it once.",
        )


def _quote_names(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:MAX_QUOTED_CHARACTERS]) for name in names[:MAX_QUOTED_NAMES])


async def validate_input(request: Request) -> None:
    """Check path, query string and JSON body. A dependency of all routes."""
    query = request.query_params.multi_items()
    check_query_parameters(request.scope["route"], [name for name, _ in query])
    for name, value in (*request.path_params.items(), *query):
        # Postgres stores neither NUL nor surrogates: without this check they end in a 500.
        check_text(str(value), name)
    # Starlette caches a JSON body for the route; a form is left for the route to stream.
    if has_json_body(request) and await request.body():
        check_json(await read_json(request), "The body")


def has_json_body(request: Request) -> bool:
    """True for application/json and any media type that ends in +json (RFC 6839)."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == "application/json" or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


async def read_json(request: Request) -> Any:
    """Raises InvalidRequest for malformed JSON."""
    try:
        return await request.json()
    except json.JSONDecodeError as error:
        raise invalid_json(error.doc, error.pos, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"The body is not valid JSON: {error}.", remedy="Send well-formed JSON in UTF-8."
        ) from error


def _walk_json(value: Any) -> Iterator[tuple[int, Any]]:
    """Yield every value with its depth, object keys included."""
    # A stack, because recursion would fail on the nesting that is to be rejected.
    stack = [(0, value)]
    while stack:
        depth, node = stack.pop()
        yield depth, node
        match node:
            case list() as items:
                stack.extend((depth + 1, item) for item in items)
            case dict() as fields:
                stack.extend((depth + 1, item) for item in (*fields.keys(), *fields.values()))


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
            remedy=f"Use a credential with the role {required_role!r}; an administrator creates "
            "one with `anabranch keys create`.",
        )
    # An operator acts for another tenant, which that tenant's audit trail shows.
    if principal.home_tenant is not None:
        services = await get_services(request)
        await services.audit.record_visit(principal, request.scope.get("request_id"))
