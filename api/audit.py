"""Record administrative actions of the API before they are acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from api.dependencies import get_caller, get_services
from schemas.errors import AnabranchError, Forbidden, TransientError


@dataclass(frozen=True, slots=True)
class AuditedAction:
    """`subject_template` is filled from the response body and the path parameters."""

    action: str
    subject_template: str


# By operation id. The service of API keys records its own actions, in the transaction that changes
# a key.
AUDITED_ACTIONS: Mapping[str, AuditedAction] = {
    "add_source": AuditedAction("source.added", "{name}"),
    "remove_source": AuditedAction("source.removed", "{name}"),
    "reset_source": AuditedAction("source.reset", "{name}"),
    "erase": AuditedAction("erasure.requested", "{receipt_id}"),
    "configure_collection": AuditedAction("collection.configured", "{collection}"),
    "delete_collection": AuditedAction("collection.deleted", "{collection}"),
    "approve_fact": AuditedAction("fact.approved", "{fact_id}"),
    "reject_fact": AuditedAction("fact.rejected", "{fact_id}"),
    "delete_fact": AuditedAction("fact.erased", "{fact_id}"),
    "redrive": AuditedAction("dead_letters.redriven", "{events} events"),
    "discard_dead_letters": AuditedAction("dead_letters.discarded", "{events} events"),
    "start_replay": AuditedAction("replay.started", "{replay_id}"),
    "change_replay": AuditedAction("replay.changed", "{replay} {action}"),
    "build_generation": AuditedAction("generation.build_started", "{generation}"),
    "pace_build": AuditedAction("generation.build_paced", "{name}"),
    "examine": AuditedAction("generation.examined", "{generation}"),
    "calibrate": AuditedAction("generation.calibrated", "{generation}"),
    "promote_generation": AuditedAction("generation.promoted", "{name}"),
    "roll_back": AuditedAction("generation.rolled_back", "{previous}"),
    "roll_back_from": AuditedAction("generation.rolled_back", "{name}"),
    "create_login_link": AuditedAction("login_link.created", "until {expires_at}"),
    "amend_entity": AuditedAction("entity.amended", "{entity}"),
    "reload_config": AuditedAction("config.reloaded", "{changed}"),
    "drop_generation": AuditedAction("generation.dropped", "{name}"),
}


class AuditedRoute(APIRoute):
    """Record the action of an operation before the response is sent, whether it succeeds or not."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        action = AUDITED_ACTIONS.get(self.operation_id or "")
        if action is None:
            return handle

        async def handle_and_record(request: Request) -> Response:
            try:
                response = await handle(request)
            # Refused requests change nothing.
            except (Forbidden, RequestValidationError):
                raise
            except Exception as error:
                # The caller must see the error of the action even when the log cannot record it.
                with suppress(TransientError):
                    await _record_action(
                        request,
                        action,
                        {},
                        error.code if isinstance(error, AnabranchError) else "BUG",
                    )
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
    request: Request, action: AuditedAction, body: Mapping[str, Any], outcome: str
) -> None:
    try:
        subject = action.subject_template.format_map({**body, **request.path_params})
    except KeyError:
        # An action that failed has no response body to name its subject.
        subject = None
    services, caller = await get_services(request), await get_caller(request)
    await services.audit.record(
        caller, action.action, subject, request.scope.get("request_id"), outcome
    )
