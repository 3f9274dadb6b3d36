"""Engine calls, remembered: what was asked before is not asked again."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from schemas.ports.ledger import Memo, MemoKey

ComputeMissing = Callable[[list[int]], Awaitable[list[bytes]]]


def build_memo_key(tenant: str, document_id: UUID, engine: str, engine_input: bytes) -> MemoKey:
    return MemoKey(tenant, document_id, engine, hashlib.sha256(engine_input).digest())


async def memoize(memo: Memo, keys: Sequence[MemoKey], compute_missing: ComputeMissing, cached_answers: Mapping[MemoKey, bytes] | None = None) -> list[bytes]:
    """Answers in the order of `keys`. `ask` gets the positions of those that nobody has asked yet (each different key once) and answers
    them; its answers are stored before this returns, so that a retry gives the same ones even from a moody engine. Whoever has looked into the memo
    already gives what is `known`."""
    cached_answers = dict(await memo.fetch(list(dict.fromkeys(keys))) if cached_answers is None else cached_answers)
    missing_positions: dict[MemoKey, int] = {}
    for position, key in enumerate(keys):
        if key not in cached_answers:
            missing_positions.setdefault(key, position)
    if missing_positions:
        new_answers = dict(zip(missing_positions, await compute_missing(list(missing_positions.values())), strict=True))
        await memo.store(new_answers)
        cached_answers |= new_answers
    return [cached_answers[key] for key in keys]
