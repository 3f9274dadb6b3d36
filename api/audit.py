"""Administrative acts of the API, recorded before they are acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from api.access import caller, services
from schemas.errors import AnabranchError, Forbidden, TransientError


@dataclass(frozen=True, slots=True)
class Act:
    """`subject` is a template over the response and the parameters of the path."""

    what: str
    subject: str


ACTS: Mapping[str, Act] = {
    "add_source": Act("source.added", "{name}"),
    "remove_source": Act("source.removed", "{name}"),
    "reset_source": Act("source.reset", "{name}"),
    "erase": Act("erasure.requested", "{receipt_id}"),
    "redrive": Act("dead_letters.redriven", "{events} events"),
    "discard_dead_letters": Act("dead_letters.discarded", "{events} events"),
    "start_replay": Act("replay.started", "{replay_id}"),
    "change_replay": Act("replay.changed", "{replay} {action}"),
    "build_generation": Act("generation.build_started", "{generation}"),
    "pace_build": Act("generation.build_paced", "{name}"),
    "promote_generation": Act("generation.promoted", "{name}"),
    "roll_back": Act("generation.rolled_back", "{previous}"),
    "roll_back_from": Act("generation.rolled_back", "{name}"),
    "create_login_link": Act("login_link.created", "until {expires_at}"),
    "drop_generation": Act("generation.dropped", "{name}"),
}
"""By operation id. The service of API keys records its own acts, in the transaction that changes a key."""


class AuditedRoute(APIRoute):
    """Records the act of its operation once it is done or has failed, and only then answers."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        act = ACTS.get(self.operation_id or "")
        if act is None:
            return handle

        async def audited(request: Request) -> Response:
            try:
                response = await handle(request)
            except (Forbidden, RequestValidationError):
                raise
            except Exception as error:
                # The caller gets the error of the act, also where a log that is away does not take its record.
                with suppress(TransientError):
                    await _record(request, act, {}, error.code if isinstance(error, AnabranchError) else "BUG")
                raise
            body = json.loads(bytes(response.body))
            if not await _is_dry_run(request):
                await _record(request, act, body, "refused" if body.get("promoted") is False else "done")
            return response

        return audited


async def _record(request: Request, act: Act, body: Mapping[str, Any], outcome: str) -> None:
    try:
        subject = act.subject.format_map({**body, **request.path_params})
    except KeyError:
        subject = None
    await services(request).audit.record(caller(request), act.what, subject, request.scope.get("request_id"), outcome)


async def _is_dry_run(request: Request) -> bool:
    body = await request.body()
    return bool(body) and json.loads(body).get("dry_run") is True
