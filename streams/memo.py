"""Engine calls, remembered: what was asked before is not asked again."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from schemas.ports.ledger import Memo, MemoKey

Ask = Callable[[list[int]], Awaitable[list[bytes]]]


def memo_key(tenant: str, document_id: UUID, engine: str, question: bytes) -> MemoKey:
    return MemoKey(tenant, document_id, engine, hashlib.sha256(question).digest())


async def remembered(memo: Memo, keys: Sequence[MemoKey], ask: Ask, known: Mapping[MemoKey, bytes] | None = None) -> list[bytes]:
    """Answers in the order of `keys`. `ask` gets the positions of those that nobody has asked yet (each different key once) and answers
    them; its answers are stored before this returns, so that a retry gives the same ones even from a moody engine. Whoever has looked into the memo
    already gives what is `known`."""
    known = dict(await memo.recall(list(dict.fromkeys(keys))) if known is None else known)
    missing: dict[MemoKey, int] = {}
    for position, key in enumerate(keys):
        if key not in known:
            missing.setdefault(key, position)
    if missing:
        answers = dict(zip(missing, await ask(list(missing.values())), strict=True))
        await memo.store(answers)
        known |= answers
    return [known[key] for key in keys]
