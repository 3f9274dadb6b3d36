"""Engine result cache by input hash."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from schemas.ports.ledger import Memo, MemoKey

ComputeMissing = Callable[[list[int]], Awaitable[list[bytes]]]


def build_memo_key(tenant: str, document_id: UUID, engine: str, engine_input: bytes) -> MemoKey:
    return MemoKey(tenant, document_id, engine, hashlib.sha256(engine_input).digest())


async def memoize(
    memo: Memo,
    keys: Sequence[MemoKey],
    compute_missing: ComputeMissing,
    cached_answers: Mapping[MemoKey, bytes] | None = None,
) -> list[bytes]:
    """Return results in the order of `keys`, computing those that the memo does not have.

    `compute_missing` receives the positions of missing keys, each distinct key once. New results
    are stored before this returns, so that a retry gets the same ones even from a non-deterministic
    engine. `cached_answers` are the results that the caller has already fetched from the memo.
    """
    cached_answers = dict(
        await memo.fetch(list(dict.fromkeys(keys))) if cached_answers is None else cached_answers
    )
    missing_positions: dict[MemoKey, int] = {}
    for position, key in enumerate(keys):
        if key not in cached_answers:
            # `setdefault` keeps the first position: equal inputs call the engine once.
            missing_positions.setdefault(key, position)
    if missing_positions:
        new_answers = dict(
            zip(
                missing_positions,
                await compute_missing(list(missing_positions.values())),
                strict=True,
            )
        )
        # Before returning: after a crash the retry must not get another answer for the same input.
        await memo.store(new_answers)
        cached_answers |= new_answers
    return [cached_answers[key] for key in keys]
