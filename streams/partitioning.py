"""Partition of a key as in Kafka's Java clients and aiokafka. librdkafka's default, CRC32, differs."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def choose_partition(key: bytes, partition_count: int) -> int:
    """Choose the partition as Kafka's Java producer does by default for records with a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Compute the unsigned 32-bit MurmurHash2 with Kafka's seed
    (org.apache.kafka.common.utils.Utils).
    """
    state = (_SEED ^ len(data)) & _MASK
    aligned_length = len(data) & ~3
    for start in range(0, aligned_length, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        state = state * _MULTIPLIER & _MASK ^ word
    if aligned_length < len(data):
        state = (state ^ int.from_bytes(data[aligned_length:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15
