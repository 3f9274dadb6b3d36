"""Offsets of a consumer group from a coordinator's answers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotCoordinatorForGroupError
from aiokafka.structs import OffsetAndMetadata

from schemas.errors import LogUnavailable
from streams.kafka import group_offsets
from streams.kafka.client_settings import KafkaClientSettings
from streams.kafka.group_offsets import GroupOffsets


class FakeCoordinator:
    """Returns the answers in turn, and the last one repeatedly."""

    def __init__(self, *answers: dict[TopicPartition, OffsetAndMetadata] | Exception) -> None:
        self.answers = list(answers)

    async def list_consumer_group_offsets(
        self, group: str, *, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_RETRY_DELAY_S", 0.0)


def make_groups(*answers: Any) -> GroupOffsets:
    found = GroupOffsets(KafkaClientSettings("here:9"))
    found._client = FakeCoordinator(*answers)  # type: ignore[assignment]
    return found


COMMITTED_OFFSETS = {
    TopicPartition("t", 0): OffsetAndMetadata(5, ""),
    TopicPartition("t", 1): OffsetAndMetadata(-1, ""),
}


async def test_partitions_without_committed_offset_are_omitted() -> None:
    assert await make_groups(COMMITTED_OFFSETS).fetch_committed("g", "t", 2) == {0: 5}


@pytest.mark.parametrize(
    "refusal",
    [{}, NotCoordinatorForGroupError(), OSError("reset")],
    ids=["an empty answer", "another broker's", "a broken connection"],
)
async def test_unready_coordinator_is_retried(
    refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await make_groups(refusal, refusal, COMMITTED_OFFSETS).fetch_committed("g", "t", 2) == {
        0: 5
    }
    monkeypatch.setattr(group_offsets, "_RETRY_FOR_S", 0.01)
    with pytest.raises(LogUnavailable):
        await make_groups(refusal).fetch_committed("g", "t", 2)
