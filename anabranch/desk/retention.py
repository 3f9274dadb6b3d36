"""Whether the log still holds what an index was made from."""

from __future__ import annotations

from anabranch.composition.storage import Storage
from schemas.errors import PermanentError
from sql.index_size import first_needed


async def check_retained(storage: Storage, live: str, *, read_by: str | None = None) -> None:
    """Raises PermanentError with code NOT_RETAINED and the missing ranges where it does not. What the generation `read_by` has read already is not needed any more."""
    missing = []
    for place in await first_needed(storage.pool, live, read_by):
        first = (await storage.log.ends(place.topic)).get(place.partition, (0, 0))[0]
        if place.offset < first:
            missing.append(f"{place.topic}, partition {place.partition}: offsets {place.offset} to {first - 1}")
    if missing:
        raise PermanentError(
            f"the log no longer holds what {live} was made from: {'; '.join(missing)}",
            code="NOT_RETAINED",
            remedy="Change an earlier stage too, or send the missing documents again.",
        )
