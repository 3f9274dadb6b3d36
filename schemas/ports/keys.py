"""Encryption keys of log payloads: one for each life of a document and one for each run.

Destroying a key erases the payloads that it encrypts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

TAMPERED = "TAMPERED"
"""Code of a payload that its key does not decrypt."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored in the keystore."""

    id: UUID
    tenant: str
    subject: UUID
    """Id of the document or the run."""
    wrapped_key: bytes | None
    """Encrypted with the master key and the share in `slot`. None if destroyed."""
    slot: int | None = None
    """Slot in the key file. None if only the master key wraps the key."""


class KeyShares(Protocol):
    """Random key shares outside the database, in a file that can be overwritten. Calls may block on
    disk.
    """

    def allocate(self, count: int) -> list[tuple[int, bytes]]:
        """Allocate unused slots, each with its share. Durable when it returns."""

    def release(self, unused: Iterable[tuple[int, bytes]]) -> None:
        """Release allocated slots that no key refers to."""

    def read(self, slot: int) -> bytes | None:
        """Return the share, or None if it was overwritten or is in no file."""


class Keystore(Protocol):
    """Storage of wrapped keys.

    It is not a view of the log and has its own backup. All methods raise DatabaseUnavailable.
    """

    async def get_or_create(self, proposed: Sequence[StoredKey]) -> list[StoredKey]:
        """Return the current key of each subject, in order.

        Stores the proposed key where there is none or it was destroyed. Subjects must be distinct.
        """

    async def fetch(self, ids: Sequence[UUID]) -> Mapping[UUID, StoredKey]:
        """Fetch keys by id. Unknown ids are omitted."""

    async def fetch_current_ids(self, tenant: str, subjects: Sequence[UUID]) -> list[UUID]:
        """Return the ids of the subjects' keys that are not destroyed."""

    async def destroy(self, tenant: str, keys: Iterable[UUID]) -> None:
        """Destroy keys permanently.

        Unknown ids are recorded as well, so that a restored backup does not bring them back.
        """


class PayloadCipher(Protocol):
    """Encrypts and decrypts payloads for the codec.

    `context` is authenticated: a payload only opens with the same one.
    """

    async def seal(
        self, tenant: str, subject: UUID, payload: bytes, *, context: bytes, key: UUID | None
    ) -> tuple[UUID, bytes] | None:
        """Encrypt the payload with `key` (that of the causing event), else with the subject's
        current key.

        Returns None if the tenant's events are not encrypted. Raises DataErased if `key` was
        destroyed.
        """

    async def prefetch(self, keys: Iterable[UUID]) -> None:
        """Load keys in one query before they are used.

        An invalid key raises when it is used. Raises DatabaseUnavailable.
        """

    async def open(self, key: UUID, payload: bytes, *, context: bytes) -> bytes:
        """Decrypt the payload.

        Raises DataErased if the key was destroyed, KeyLost if its share is not in the key file, and
        PermanentError if it is not in the keystore or the payload was tampered with.
        """
