"""Keys of what the log holds: one for each life of a document and for each run, so that destroying a key erases what was said under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

TAMPERED = "TAMPERED"
"""Code of a payload that does not open with its key."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as the keystore has it."""

    id: UUID
    tenant: str
    subject: UUID
    """The document or the run."""
    wrapped_key: bytes | None
    """Encrypted with the master key and the share in `slot`; None when it was destroyed or lost."""
    is_lost: bool = False
    slot: int | None = None
    """Of the key file; None where the master key alone wraps it."""


class KeyShares(Protocol):
    """Random shares of keys, outside the database, where they can be overwritten. Calls may block for the disk."""

    def allocate(self, count: int) -> list[tuple[int, bytes]]:
        """Slots that nobody else has, each with its share, which a crash does not lose."""

    def release(self, unused: Iterable[tuple[int, bytes]]) -> None:
        """Slots that were taken and that no key refers to."""

    def read(self, slot: int) -> bytes | None:
        """None where it was overwritten, or is in no file."""


class Keystore(Protocol):
    """Where wrapped keys lie. It is no view of the log and has a backup of its own. All raise DatabaseUnavailable."""

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        """The current key of each subject, in the order asked: the proposed one where there is none or it was destroyed. Subjects are distinct."""

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        """Unknown ones are left out."""

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        """The keys of these subjects that are not destroyed."""

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        """For good: a key that is not here is noted as destroyed all the same, so that a restored backup does not bring it back."""

    async def mark_lost(self, keys: Mapping[UUID, str]) -> None:
        """Note that these, each with its tenant, are nowhere: what they sealed is passed over."""


class PayloadCipher(Protocol):
    """What the codec asks. `context` is bound to the payload: with another one it does not open."""

    async def seal(self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None) -> tuple[UUID, bytes] | None:
        """The payload sealed with `key` (that of the causing event), else with the subject's current one; None where nothing is sealed for this tenant.
        Raises Erased where `key` was destroyed."""

    async def prefetch(self, keys: Iterable[UUID]) -> None:
        """Have these at hand, by one question, for when they are asked to open something soon. What is wrong with one is said then. Raises DatabaseUnavailable."""

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        """Raises Erased where the key was destroyed, KeyLost where it is known to be nowhere, PermanentError where it is not in the keystore or the payload was tampered with."""
