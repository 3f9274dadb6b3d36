"""What is made of a coordinator's answers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import NotCoordinatorForGroupError
from aiokafka.structs import OffsetAndMetadata

from schemas.errors import LogUnavailable
from streams.kafka import groups
from streams.kafka.groups import Groups
from streams.kafka.settings import KafkaSettings


class Coordinator:
    """Gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: dict[TopicPartition, OffsetAndMetadata] | Exception) -> None:
        self.answers = list(answers)

    async def list_consumer_group_offsets(self, group: str, *, partitions: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_AGAIN_AFTER_S", 0.0)


def asked(*answers: Any) -> Groups:
    found = Groups(KafkaSettings("here:9"))
    found._client = Coordinator(*answers)  # type: ignore[assignment]
    return found


HERE = {TopicPartition("t", 0): OffsetAndMetadata(5, ""), TopicPartition("t", 1): OffsetAndMetadata(-1, "")}


async def test_what_nothing_is_committed_of_is_left_out() -> None:
    assert await asked(HERE).committed("g", "t", 2) == {0: 5}


@pytest.mark.parametrize("refusal", [{}, NotCoordinatorForGroupError(), OSError("reset")], ids=["an empty answer", "another broker's", "a broken connection"])
async def test_a_coordinator_that_is_not_ready_is_asked_again_and_never_taken_for_one_that_knows_of_nothing(refusal: Any) -> None:
    assert await asked(refusal, refusal, HERE).committed("g", "t", 2) == {0: 5}
    with pytest.raises(LogUnavailable):
        await asked(refusal).committed("g", "t", 2)
