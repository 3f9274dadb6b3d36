"""Check that the log still holds the events that an index was built from."""

from __future__ import annotations

from schemas.errors import PermanentError
from services.storage import Storage
from sql.generations import fetch_first_needed_positions


async def check_retained(storage: Storage, live: str, *, read_by: str | None = None) -> None:
    """Raise PermanentError with code NOT_RETAINED and the missing ranges.

    Offsets that generation `read_by` has consumed are not needed.
    """
    missing = []
    for required in await fetch_first_needed_positions(storage.pool, live, read_by):
        first = (await storage.log.fetch_offset_bounds(required.topic)).get(
            required.partition, (0, 0)
        )[0]
        if required.offset < first:
            missing.append(
                f"{required.topic}, partition {required.partition}: offsets {required.offset} to {first - 1}"
            )
    if missing:
        raise PermanentError(
            f"the log no longer holds what {live} was made from: {'; '.join(missing)}",
            code="NOT_RETAINED",
            remedy="Change an earlier stage too, or send the missing documents again.",
        )
