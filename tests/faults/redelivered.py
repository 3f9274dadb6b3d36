"""Every event one to five times: handed over again at once, and read again from the beginning after the groups' places were lost."""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from anabranch.composition.genesis import FIRST
from processors import STAGES
from streams.hosting import group_name
from tests.faults.trial import Fault, Trial
from tests.faults.worker import AGAIN
from tests.integration.cluster import tail

MOST = 5
PASS_S = 8.0


def strike(trial: Trial) -> int:
    how = {"deliveries": MOST, "seed": trial.mood.randrange(1 << 30)}
    trial.staffed(2, **how)
    trial.feed_to(1.0)
    read_again = 0
    for _ in trial.rounds(PASS_S)[: MOST - 1]:
        trial.heard(len(trial.sent))
        trial.crew.await_quiet()
        for worker in trial.crew.alive():
            trial.crew.dismiss(worker)
        read_again += begin_again(trial)
        trial.staffed(2, **how)
    return read_again + sum(map(int, trial.crew.noted(AGAIN)))


def begin_again(trial: Trial) -> int:
    """Set all groups back to the first record of each partition; returns how many records will come again."""
    admin = AdminClient({"bootstrap.servers": trial.crew.settings.bootstrap_servers})
    again = 0
    for stage in STAGES:
        topic = trial.crew.topic(stage.topic)
        group = trial.crew.settings.topic_prefix + group_name(stage.name, None if stage.shared else FIRST)
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in partitions]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])[group].result()
        with tail(trial.crew.settings, stage.topic) as records:
            again += len(records.poll())
    return again


FAULT = Fault("redelivery of every event, one to five times", strike)
