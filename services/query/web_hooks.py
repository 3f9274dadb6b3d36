"""Deliver changed answers of saved questions to the address that the question names.

Signed as Standard Webhooks describes (https://www.standardwebhooks.com): HMAC-SHA256 over id, time
and body. The secret of a question derives from the master key and is stored nowhere; after a
rotation, each message has a signature by the former key too.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import starmap
from typing import Protocol
from uuid import UUID

import structlog
from pydantic_core import to_json

from schemas.errors import AnabranchError, ForbiddenAddress, NotFound
from schemas.events import AnswerChanged
from schemas.run_records import RunDiff
from schemas.standing_questions import HookedChange
from schemas.timestamps import utc_now
from schemas.urls import redact_urls
from services.query.run_history import RunHistory
from sql.index.standing_questions import AskedQuestion, PgStandingQuestions
from streams.cloudevents import EventSigner, compute_mac

log = structlog.get_logger(__name__)
MAX_ATTEMPTS = 8
FIRST_PAUSE_S, MAX_PAUSE_S = 2.5, 3_600.0
"""Four times as long after each attempt: 10 s, 40 s, 3 min, 11 min, 43 min, and then an hour."""
GONE = 410
MAX_DELIVERIES = 16
"""At once, of as many tenants as possible."""
SEND_TIMEOUT_S = 10.0
"""Below the minute for which a delivery is claimed, so that no other process sends it meanwhile."""
SECRET_PREFIX = "whsec_"
MAX_ERROR_LENGTH = 500


class HookSender(Protocol):
    async def check_url(self, url: str) -> None: ...

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int: ...


@dataclass(frozen=True, slots=True)
class WebHooks:
    tables: PgStandingQuestions
    history: RunHistory
    build_sender: Callable[[], HookSender]
    """Called for each use: importing an HTTP client would slow down every start."""
    signer: EventSigner

    def format_secret(self, question_id: UUID) -> str:
        """Return the secret that verifies the signatures of a question's messages."""
        return SECRET_PREFIX + base64.b64encode(self._derive_secrets(question_id)[0]).decode()

    def _derive_secrets(self, question_id: UUID) -> list[bytes]:
        return self.signer.derive_secrets(b"web hook " + question_id.bytes)

    async def deliver_next(self) -> bool:
        """Make the deliveries that are due, some at once; return whether there was one."""
        claimed = await self.tables.claim_deliveries(MAX_DELIVERIES)
        ends = await asyncio.gather(*starmap(self._deliver, claimed), return_exceptions=True)
        for error in filter(None, ends):
            raise error
        return bool(claimed)

    async def _deliver(self, change: AnswerChanged, attempt: int) -> None:
        asked = await self.tables.find_asked(change.question_id)
        if asked is None or asked.request.hook_url is None:
            return  # deleted meanwhile, with its changes
        error, is_final = await self._send(asked, asked.request.hook_url, change)
        if error is None:
            await self.tables.end_delivery(change.change_id, "delivered", None, None)
            return
        state = "failed" if is_final or attempt >= MAX_ATTEMPTS else "pending"
        again_at = utc_now() + timedelta(seconds=min(MAX_PAUSE_S, FIRST_PAUSE_S * 4**attempt))
        question = str(change.question_id)
        log.warning("web_hook_failed", question=question, attempt=attempt, state=state, error=error)
        await self.tables.end_delivery(change.change_id, state, error[:MAX_ERROR_LENGTH], again_at)

    async def _send(
        self, asked: AskedQuestion, url: str, change: AnswerChanged
    ) -> tuple[str | None, bool]:
        """Return how the delivery failed, if it did, and whether a repeat cannot succeed."""
        data = await self._describe(asked, change)
        now = utc_now()
        message = {"type": change.name, "timestamp": now, "data": data.model_dump()}
        body = to_json(message)
        secrets = self._derive_secrets(asked.question_id)
        headers = sign_message(secrets, change.change_id, now, body)
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                status = await self.build_sender().post(url, body, headers)
        except TimeoutError:
            return f"The address did not answer within {SEND_TIMEOUT_S:g} s.", False
        except AnabranchError as error:
            # The address may hold a secret in its path, and the log has other readers.
            detail = error.detail.replace(redact_urls(url), "The address")
            return detail, isinstance(error, ForbiddenAddress)
        if 200 <= status < 300:
            return None, False
        return f"The address answered {status}.", status == GONE

    async def _describe(self, asked: AskedQuestion, change: AnswerChanged) -> HookedChange:
        """Add the texts, as far as the owner may still read them."""
        diff: RunDiff | None = None
        try:
            diff = await self.history.diff_run(asked.owner, change.previous_run_id, change.run_id)
        except NotFound as error:
            log.info("web_hook_without_text", run=str(change.run_id), code=error.code)
        return HookedChange(
            **change.model_dump(),
            question=asked.request.query,
            then=diff.then if diff else None,
            now=diff.now if diff else None,
            reasons=diff.reasons if diff else [],
        )


def sign_message(
    secrets: Sequence[bytes], message_id: UUID, timestamp: datetime, body: bytes
) -> dict[str, str]:
    """Return the headers of a message, with a signature by each secret."""
    seconds = int(timestamp.timestamp())
    signed = f"{message_id}.{seconds}.".encode() + body
    signatures = [base64.b64encode(compute_mac(secret, signed)).decode() for secret in secrets]
    return {
        "content-type": "application/json",
        "webhook-id": str(message_id),
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
