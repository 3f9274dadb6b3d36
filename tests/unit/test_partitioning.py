"""Keys go where Kafka's Java clients put them."""

from __future__ import annotations

import aiokafka.partitioner
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.partitioning import choose_partition, murmur2


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_matches_java_client(key: bytes, java: int) -> None:
    assert murmur2(key) == java & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 64))
def test_partition_matches_aiokafka(key: bytes, partitions: int) -> None:
    numbers = list(range(partitions))
    assert choose_partition(key, partitions) == aiokafka.partitioner.DefaultPartitioner()(
        key, numbers, numbers
    )
