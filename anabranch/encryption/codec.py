"""Keys that encrypt and sign events: the codec, and the files of the data folder that hold them."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

import structlog

from anabranch.config.settings import KEY_FILE_NAME, Settings
from processors import EVENT_CLASSES
from schemas.errors import ConfigurationError
from schemas.ids import canonical_json
from schemas.ports.log import EventLog
from schemas.topics import CONTROL
from sql.database import Pool
from sql.operations.keystore import ALL_TENANTS, PgKeystore, wrong_key_file_error
from streams.cloudevents import EventSigner, compute_mac, derive_signing_key
from streams.codec import Codec
from streams.payload_keys import (
    KEY_BYTES,
    SealingKeys,
    compute_master_key_fingerprint,
    unwrap_signing_key,
)

logger = structlog.get_logger(__name__)


async def build_codec(
    settings: Settings, pool: Pool, log: EventLog, key_file: KeyFile | None
) -> Codec:
    """Build the codec. It decrypts existing events also if `log.encrypt` is off.

    Raises ConfigurationError if the keystore was created with another master key or key file.
    """
    keystore = PgKeystore(pool)
    master = resolve_master_key(settings, await keystore.fetch_fingerprint())
    await keystore.ensure_master_key(
        compute_master_key_fingerprint(master), key_file.id if key_file else None
    )
    if key_file is not None and (last := await keystore.fetch_last_slot()) is not None:
        # An older copy of the file must not assign the slots of newer keys again.
        key_file.skip_to(last)
    # Erasure receipts have to name events that were written unencrypted.
    await keystore.record_readable_tenants(
        settings.log.plain_tenants if settings.log.encrypt else (ALL_TENANTS,)
    )
    return Codec(
        SealingKeys(
            keystore, master, shares=key_file, is_plaintext_tenant=build_readable_check(settings)
        ),
        EVENT_CLASSES,
        signer=await _load_signatures(keystore, master, log),
    )


async def _load_signatures(keystore: PgKeystore, master: bytes, log: EventLog) -> EventSigner:
    """Load the signing keys. Raises ConfigurationError for another master key."""
    # A log of an older version holds unsigned events: those before the first start of this version
    # are accepted.
    former_keys = (await keystore.fetch_signing_keys()).items()
    keys = [
        derive_signing_key(master),
        *(unwrap_signing_key(master, name, wrapped) for name, wrapped in former_keys),
    ]
    unsigned_record = await keystore.fetch_unsigned_below()
    if unsigned_record is None:
        first_event = await anext(log.read(CONTROL), None)
        unsigned_below: dict[str, dict[str, int]] = {}
        if first_event is not None and not EventSigner(keys).verify(first_event):
            for topic in await log.list_topics():
                bounds = await log.fetch_offset_bounds(topic)
                unsigned_below[topic] = {
                    str(partition): end for partition, (_, end) in bounds.items()
                }
        # The ends decide which unsigned events are accepted, so a code under the master key
        # protects them.
        encoded = canonical_json(unsigned_below)
        unsigned_record = await keystore.record_unsigned_below(
            encoded, compute_mac(keys[0], encoded)
        )
    # What is stored counts: another process may have recorded its ends first.
    encoded, tag = unsigned_record
    if not hmac.compare_digest(tag, compute_mac(keys[0], encoded)):
        raise ConfigurationError(
            "The authentication code in table keystore.unsigned_events does not match its content.",
            code="WRONG_MASTER_KEY",
            remedy="Restore schema `keystore` from its backup, or use the master key that the "
            "keystore was created with.",
        )
    unsigned_ends = json.loads(encoded)
    return EventSigner(
        keys,
        {
            topic: {int(partition): end for partition, end in ends.items()}
            for topic, ends in unsigned_ends.items()
        },
    )


async def open_key_file(settings: Settings, pool: Pool) -> KeyFile | None:
    """Open the key file of the settings, else that in the data folder of an embedded Postgres, else
    return None.

    Raises ConfigurationError if the keystore refers to a key file that is missing.
    """
    path, key_file_id = settings.resolve_key_file(), await PgKeystore(pool).fetch_key_file()
    if path is None and key_file_id is not None:
        path = (
            settings.data_dir / KEY_FILE_NAME
        )  # database.url points to the embedded Postgres of this data folder
    if path is None:
        return None
    if key_file_id is not None and not path.exists():
        raise wrong_key_file_error(key_file_id, None)
    return KeyFile(path)


def build_readable_check(settings: Settings) -> Callable[[str], bool]:
    """Return the predicate for tenants whose events are not encrypted."""
    plain = frozenset(settings.log.plain_tenants)
    return lambda tenant: not settings.log.encrypt or tenant in plain


def resolve_master_key(settings: Settings, keystore_fingerprint: str | None) -> bytes:
    """Return the master key from the settings, else from the data folder.

    The keystore's fingerprint decides whether an interrupted rotation is finished or undone.
    """
    configured = settings.log.master_key
    if configured is not None:
        return parse_master_key(configured.get_secret_value(), "ANABRANCH_LOG__MASTER_KEY")
    return load_master_key(
        settings.data_dir, lambda key: compute_master_key_fingerprint(key) == keystore_fingerprint
    )


def parse_master_key(text: str, setting_name: str) -> bytes:
    """Parse a key of 32 bytes in base64. Raises ConfigurationError with code BAD_MASTER_KEY."""
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{setting_name} is not {KEY_BYTES} bytes in base64.",
            code="BAD_MASTER_KEY",
            remedy="Create a key with: openssl rand -base64 32",
        )
    return key


SHARE_BYTES = 32
BLOCK_SLOTS = 256
"""Shares written and synced at once, so that creating a key rarely waits for the disk.

A killed process wastes at most its block of 8 KiB.
"""
MAGIC = b"anabranch shares"
HEADER_BYTES = SHARE_BYTES
EMPTY_SHARE = bytes(SHARE_BYTES)


class KeyFile:
    """Shares by slot number, in a file of mode 0600.

    Processes of one machine may share it; slots are never reused.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file.

        Raises ConfigurationError with code WRONG_KEY_FILE for a file of another format.
        """
        self.path = path
        self._unused: list[tuple[int, bytes]] = []
        self._mutex = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # Another process may be creating the file at this moment.
        with self._lock_file():
            if os.fstat(self._file).st_size < HEADER_BYTES:
                os.pwrite(self._file, MAGIC + uuid4().bytes, 0)
                os.fsync(self._file)
                # The folder too: otherwise a crash may lose the name of a synced file.
                fsync_path(path.parent)
        header = os.pread(self._file, HEADER_BYTES, 0)
        if header[: len(MAGIC)] != MAGIC:
            raise ConfigurationError(
                f"{path} is not a key file.",
                code="WRONG_KEY_FILE",
                remedy="Restore the key file from its backup.",
            )
        self.id = UUID(bytes=header[len(MAGIC) :])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def allocate(self, count: int) -> list[tuple[int, bytes]]:
        """Return unused slots with their shares, which are on disk.

        Blocks on a sync if the block is used up.
        """
        with self._mutex:
            while len(self._unused) < count:
                shares = [secrets.token_bytes(SHARE_BYTES) for _ in range(BLOCK_SLOTS)]
                with self._lock_file():
                    first = self._find_next_slot()
                    os.pwrite(self._file, b"".join(shares), _slot_offset(first))
                    # On disk before any key is wrapped with one of them.
                    os.fsync(self._file)
                self._unused += enumerate(shares, first)
            allocated, self._unused = self._unused[:count], self._unused[count:]
            return allocated

    def release(self, unused: Iterable[tuple[int, bytes]]) -> None:
        """Return allocated slots that no key refers to."""
        with self._mutex:
            self._unused += unused

    def read(self, slot: int) -> bytes | None:
        """Return the share, or None if it was overwritten or the file ends before it."""
        share = os.pread(self._file, SHARE_BYTES, _slot_offset(slot))
        return share if len(share) == SHARE_BYTES and share != EMPTY_SHARE else None

    def overwrite(self, slots: Iterable[int]) -> int:
        """Overwrite the slots with zeros and wait for the disk.

        Returns how many were not empty yet. Idempotent.
        """
        filled = [slot for slot in slots if self.read(slot) is not None]
        # In place, since a new file would leave the old blocks on the disk.
        for slot in filled:
            os.pwrite(self._file, EMPTY_SHARE, _slot_offset(slot))
        if filled:
            os.fsync(self._file)
        return len(filled)

    def skip_to(self, slot: int) -> None:
        """Reserve all slots up to this one: the file may be an older copy."""
        with self._lock_file():
            if self._find_next_slot() <= slot:
                # Extends the file with zeros, which `read` reports as missing shares.
                os.ftruncate(self._file, _slot_offset(slot + 1))
                os.fsync(self._file)

    def _find_next_slot(self) -> int:
        # Rounded up, so that a slot that a crash left half-written is skipped.
        return -(-(os.fstat(self._file).st_size - HEADER_BYTES) // SHARE_BYTES)

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        # flock belongs to the open file description, which threads of this process share: open
        # another one.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _slot_offset(slot: int) -> int:
    return HEADER_BYTES + slot * SHARE_BYTES


def load_link_key(data_dir: Path) -> bytes:
    """Load or create the key that signs links."""
    return _load_or_create(data_dir, "link.key")


MASTER_KEY_FILE = "master.key"
NEXT_MASTER_KEY_FILE = "next-master.key"
OLD_MASTER_KEY_FILE = "old-master.key"


def load_master_key(data_dir: Path, is_current: Callable[[bytes], bool]) -> bytes:
    """Load or create the master key (32 bytes), and finish an interrupted rotation.

    `is_current` returns whether the keystore uses the given key already. Without the master key,
    the log is unreadable.
    """
    next_path = data_dir / NEXT_MASTER_KEY_FILE
    is_rotation_begun = (
        is_current(next_path.read_bytes())
        if next_path.exists()
        else (data_dir / OLD_MASTER_KEY_FILE).exists()
    )
    if is_rotation_begun or not (data_dir / MASTER_KEY_FILE).exists():
        finish_rotation(data_dir)
    return _load_or_create(data_dir, MASTER_KEY_FILE)


def prepare_next_master_key(data_dir: Path, provided_key: bytes | None) -> bytes:
    """Return the next master key: that of an interrupted rotation, else the provided one, else a
    new one.

    The key is on disk before it wraps anything. Raises ConfigurationError if the provided key
    differs from that of an interrupted rotation.
    """
    key = _load_or_create(data_dir, NEXT_MASTER_KEY_FILE, provided_key)
    if provided_key is not None and key != provided_key:
        raise ConfigurationError(
            "A rotation to another key was interrupted; that key is in "
            f"{data_dir / NEXT_MASTER_KEY_FILE}.",
            code="ROTATION_INTERRUPTED",
            remedy="Run `anabranch keys rewrap` without --new-key-file to finish it.",
        )
    fsync_path(data_dir / NEXT_MASTER_KEY_FILE)
    fsync_path(data_dir)
    return key


def finish_rotation(data_dir: Path) -> None:
    """Replace the current master key by the next one and overwrite the old one.

    Safe to repeat after a crash at any step.
    """
    current_path, next_path, old_path = (
        data_dir / name for name in (MASTER_KEY_FILE, NEXT_MASTER_KEY_FILE, OLD_MASTER_KEY_FILE)
    )
    if next_path.exists():
        if current_path.exists():
            # Moved aside, not overwritten yet: a crash here must lose neither key.
            current_path.replace(old_path)
        next_path.replace(current_path)
        fsync_path(data_dir)
    overwrite_and_delete(old_path)


def fsync_path(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite_and_delete(path: Path) -> None:
    """Overwrite a file with zeros, sync and delete it. A copy-on-write filesystem may keep the old
    blocks.
    """
    with suppress(FileNotFoundError):
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()


def _load_or_create(data_dir: Path, name: str, provided_key: bytes | None = None) -> bytes:
    """Read the key file, or create it with mode 0600."""
    # os.link, unlike a rename, fails if another process created the file first; all processes then
    # read that one.
    path = data_dir / name
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        temporary_path = data_dir / f"{name}.{os.getpid()}"
        temporary_path.touch(mode=0o600)
        temporary_path.write_bytes(provided_key or secrets.token_bytes(32))
        try:
            os.link(temporary_path, path)
        finally:
            temporary_path.unlink()
    return path.read_bytes()
