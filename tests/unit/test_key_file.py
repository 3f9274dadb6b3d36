from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.exceptions import InvalidTag

from anabranch.encryption.codec import BLOCK_SLOTS, HEADER_BYTES, SHARE_BYTES, KeyFile
from schemas.errors import ConfigurationError, KeyLost
from schemas.ports.keys import StoredKey
from streams.payload_keys import AESGCM, NONCE_BYTES, KeyWrapper

MASTER_KEY = os.urandom(32)
SUBJECT = ("t", UUID(int=9))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shares.key"


def test_shares_are_written_when_allocated(path: Path) -> None:
    slots = KeyFile(path).allocate(3)
    again = KeyFile(path)
    assert [again.read(slot) for slot, _ in slots] == [share for _, share in slots]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_concurrent_processes_never_share_a_slot(path: Path) -> None:
    files = [KeyFile(path) for _ in range(4)]
    assert len({file.id for file in files}) == 1
    with ThreadPoolExecutor(4) as threads:
        allocated_slots = [
            slot
            for slots in threads.map(
                lambda file: [slot for _ in range(BLOCK_SLOTS) for slot, _ in file.allocate(2)],
                files,
            )
            for slot in slots
        ]
    assert len(set(allocated_slots)) == len(allocated_slots) == 4 * 2 * BLOCK_SLOTS


def test_overwritten_share_is_erased_from_file(path: Path) -> None:
    file = KeyFile(path)
    (erased_slot, erased_share), (other_slot, other_share) = file.allocate(2)
    assert file.overwrite([erased_slot]) == 1
    assert erased_share not in path.read_bytes() and other_share in path.read_bytes()
    assert (file.read(erased_slot), KeyFile(path).read(other_slot)) == (None, other_share)
    assert file.overwrite([erased_slot, 10**6]) == 0, (
        "overwriting may be repeated, also for unknown slots"
    )


def test_destroyed_key_cannot_be_recovered_with_master_key(path: Path) -> None:
    """Try to decrypt with the master key and the wrapped key, but without the share."""
    file = KeyFile(path)
    wrapping = KeyWrapper(MASTER_KEY, file)
    [stored] = wrapping.generate_keys([SUBJECT])
    key = wrapping.unwrap(stored)
    assert len(key) == 32 and stored.slot is not None and stored.wrapped_key is not None
    file.overwrite([stored.slot])
    with pytest.raises(KeyLost):
        wrapping.unwrap(stored)
    for context in (stored.id.bytes, b""):
        with pytest.raises(InvalidTag):
            AESGCM(MASTER_KEY).decrypt(
                stored.wrapped_key[:NONCE_BYTES], stored.wrapped_key[NONCE_BYTES:], context
            )
    for other in range(BLOCK_SLOTS):
        if other != stored.slot:
            with pytest.raises(Exception, match="master key"):
                wrapping.unwrap(
                    StoredKey(
                        stored.id, stored.tenant, stored.subject, stored.wrapped_key, slot=other
                    )
                )


def test_key_without_share_is_rewrapped_with_one(path: Path) -> None:
    [older] = KeyWrapper(MASTER_KEY, None).generate_keys([SUBJECT])
    wrapping = KeyWrapper(MASTER_KEY, KeyFile(path))
    key = wrapping.unwrap(older)
    newer = wrapping.rewrap(older, key)
    assert older.slot is None and newer.slot is not None and wrapping.unwrap(newer) == key


def test_returned_share_is_reused(path: Path) -> None:
    file = KeyFile(path)
    slots = file.allocate(BLOCK_SLOTS)
    file.release(slots)
    size = path.stat().st_size
    assert file.allocate(BLOCK_SLOTS) == slots and path.stat().st_size == size


def test_torn_block_is_skipped(path: Path) -> None:
    file = KeyFile(path)
    file.allocate(1)
    with path.open("ab") as torn:
        torn.write(b"half of a share")
    [(slot, share)] = KeyFile(path).allocate(1)
    assert slot == BLOCK_SLOTS + 1 and KeyFile(path).read(slot) == share


def test_restored_key_file_allocates_no_slot_in_use(path: Path) -> None:
    KeyFile(path).allocate(1)
    restored = KeyFile(path)
    restored.skip_to(5 * BLOCK_SLOTS)
    [(slot, _)] = restored.allocate(1)
    assert slot == 5 * BLOCK_SLOTS + 1 and restored.read(5 * BLOCK_SLOTS) is None
    assert path.stat().st_size == HEADER_BYTES + (5 * BLOCK_SLOTS + 1 + BLOCK_SLOTS) * SHARE_BYTES


def test_invalid_key_file_is_refused(path: Path) -> None:
    path.write_bytes(b"x" * 100)
    with pytest.raises(ConfigurationError, match="not a key file"):
        KeyFile(path)
