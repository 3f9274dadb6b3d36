"""Every event one to five times: in the middle of the work the groups lose their places and read everything again, whatever had become of it."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.composition.genesis import FIRST
from processors import STAGES
from streams.hosting import group_name
from tests.faults.trial import Fault, Trial

MOST = 5
PASS_S = 3.0


def strike(trial: Trial) -> int:
    again = 0
    passes = trial.rounds(PASS_S)[: MOST - 1]
    for number in passes:
        trial.staffed()
        trial.feed_to((number + 1) / len(passes))
        trial.heard(len(trial.sent) // 2)
        for worker in trial.crew.alive():
            trial.crew.dismiss(worker)
        again += begin_again(trial)
    return again


def begin_again(trial: Trial) -> int:
    """Set all groups back to the first record of each partition; returns how many records they had read and will read again."""
    admin = AdminClient({"bootstrap.servers": trial.crew.settings.bootstrap_servers})
    again = 0
    for stage in STAGES:
        topic = trial.crew.topic(stage.topic)
        group = trial.crew.settings.topic_prefix + group_name(stage.name, None if stage.shared else FIRST)
        read = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result().topic_partitions
        again += sum(max(0, place.offset) for place in read)
        if read:
            first = [TopicPartition(topic, place.partition, 0) for place in read]
            admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, first)])[group].result()
    return again


FAULT = Fault("redelivery of every event, one to five times", strike)
