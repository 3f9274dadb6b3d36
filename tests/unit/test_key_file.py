from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.exceptions import InvalidTag

from anabranch.key_file import BLOCK, HEADER_BYTES, SHARE_BYTES, KeyFile
from schemas.errors import ConfigurationError, KeyLost
from schemas.ports.keys import StoredKey
from streams.keys import AESGCM, NONCE_BYTES, Wrapping

MASTER = os.urandom(32)
SUBJECT = ("t", UUID(int=9))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shares.key"


def test_shares_are_on_the_disk_when_they_are_taken(path: Path) -> None:
    taken = KeyFile(path).take(3)
    again = KeyFile(path)
    assert [again.read(slot) for slot, _ in taken] == [share for _, share in taken]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_processes_never_take_the_same_slot(path: Path) -> None:
    files = [KeyFile(path) for _ in range(4)]
    assert len({file.id for file in files}) == 1
    with ThreadPoolExecutor(4) as threads:
        taken = [slot for slots in threads.map(lambda file: [slot for _ in range(BLOCK) for slot, _ in file.take(2)], files) for slot in slots]
    assert len(set(taken)) == len(taken) == 4 * 2 * BLOCK


def test_an_overwritten_share_is_in_no_byte_of_the_file(path: Path) -> None:
    file = KeyFile(path)
    (gone, share), (stays, kept) = file.take(2)
    assert file.overwrite([gone]) == 1
    assert share not in path.read_bytes() and kept in path.read_bytes()
    assert (file.read(gone), KeyFile(path).read(stays)) == (None, kept)
    assert file.overwrite([gone, 10**6]) == 0, "may be repeated, also for slots that the file does not have"


def test_a_destroyed_key_does_not_open_with_the_master_key(path: Path) -> None:
    """The attack: master key and wrapped key, both still on some disk, without the share."""
    file = KeyFile(path)
    wrapping = Wrapping(MASTER, file)
    [stored] = wrapping.propose([SUBJECT])
    key = wrapping.unwrap(stored)
    assert len(key) == 32 and stored.slot is not None and stored.wrapped is not None
    file.overwrite([stored.slot])
    with pytest.raises(KeyLost):
        wrapping.unwrap(stored)
    for context in (stored.id.bytes, b""):
        with pytest.raises(InvalidTag):
            AESGCM(MASTER).decrypt(stored.wrapped[:NONCE_BYTES], stored.wrapped[NONCE_BYTES:], context)
    for other in range(BLOCK):
        if other != stored.slot:
            with pytest.raises(Exception, match="master key"):
                wrapping.unwrap(StoredKey(stored.id, stored.tenant, stored.subject, stored.wrapped, slot=other))


def test_a_key_of_an_older_version_opens_and_gets_a_share(path: Path) -> None:
    [older] = Wrapping(MASTER, None).propose([SUBJECT])
    wrapping = Wrapping(MASTER, KeyFile(path))
    key = wrapping.unwrap(older)
    newer = wrapping.rewrap(older, key)
    assert older.slot is None and newer.slot is not None and wrapping.unwrap(newer) == key


def test_an_unused_share_is_taken_again(path: Path) -> None:
    file = KeyFile(path)
    taken = file.take(BLOCK)
    file.give_back(taken)
    size = path.stat().st_size
    assert file.take(BLOCK) == taken and path.stat().st_size == size


def test_a_block_that_a_crash_cut_short_is_passed_over(path: Path) -> None:
    file = KeyFile(path)
    file.take(1)
    with path.open("ab") as torn:
        torn.write(b"half of a share")
    [(slot, share)] = KeyFile(path).take(1)
    assert slot == BLOCK + 1 and KeyFile(path).read(slot) == share


def test_an_older_copy_of_the_file_hands_out_no_slot_in_use(path: Path) -> None:
    KeyFile(path).take(1)
    restored = KeyFile(path)
    restored.skip_to(5 * BLOCK)
    [(slot, _)] = restored.take(1)
    assert slot == 5 * BLOCK + 1 and restored.read(5 * BLOCK) is None
    assert path.stat().st_size == HEADER_BYTES + (5 * BLOCK + 1 + BLOCK) * SHARE_BYTES


def test_another_file_is_refused(path: Path) -> None:
    path.write_bytes(b"x" * 100)
    with pytest.raises(ConfigurationError, match="no key file"):
        KeyFile(path)
