"""Redeliver every event one to five times: while workers run, the consumer groups are set back to
the first record.
"""

from __future__ import annotations

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from processors import STAGES
from services.generations.decisions import FIRST_GENERATION
from streams.stage_consumer import format_group_name
from tests.faults.trial import Fault, FaultTrial

MAX_DELIVERIES = 5
ROUND_S = 3.0


def inject(trial: FaultTrial) -> int:
    n_redelivered = 0
    passes = trial.get_rounds(ROUND_S)[: MAX_DELIVERIES - 1]
    for number in passes:
        trial.start_workers()
        trial.push_share((number + 1) / len(passes))
        trial.wait_for_outcomes(len(trial.sent_ids) - trial.n_pushed // 2)
        trial.fleet.stop_running()
        n_redelivered += rewind_groups(trial)
    return n_redelivered


def rewind_groups(trial: FaultTrial) -> int:
    """Set all groups back to the first record of each partition; return how many records they will
    read again.
    """
    admin = AdminClient({"bootstrap.servers": trial.fleet.settings.bootstrap_servers})
    n_redelivered = 0
    for stage in STAGES:
        topic = trial.fleet.topic_name(stage.topic)
        group = trial.fleet.settings.topic_prefix + format_group_name(
            stage.name, None if stage.serves_all_generations else FIRST_GENERATION
        )
        committed = (
            admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
            .result()
            .topic_partitions
        )
        n_redelivered += sum(max(0, place.offset) for place in committed)
        if committed:
            start_offsets = [TopicPartition(topic, place.partition, 0) for place in committed]
            admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, start_offsets)]
            )[group].result()
    return n_redelivered


FAULT = Fault("redelivery of every event, one to five times", inject)
