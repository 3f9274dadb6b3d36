"""A handler that takes more than three times `max.poll.interval`, with full partitions: no worker
leaves its group.
"""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from streams.partition_sink import PartitionLimits
from tests.faults.trial import Fault, FaultTrial

MAX_POLL_INTERVAL_S = 2.0
HANDLER_S = 6.5
SMALL_BOUNDS = PartitionLimits(queue_bytes=2_000)
"""Full after one or two events."""
EVENTS_PER_ROUND = 20
GROUP = "anabranch.embed.g1"


def inject(trial: FaultTrial) -> int:
    trial.start_workers(
        pause_s=HANDLER_S, max_poll_interval_s=MAX_POLL_INTERVAL_S, bounds=SMALL_BOUNDS
    )
    trial.fleet.wait_for_members(GROUP, 1)
    members_before = fetch_members(trial)
    for _ in trial.get_rounds(2 * HANDLER_S):
        trial.push_next(EVENTS_PER_ROUND)
        trial.wait_for_outcomes(len(trial.sent_ids))
    trial.expect(
        fetch_members(trial) == members_before, "a worker that was only slow left its group"
    )
    (slow,) = trial.fleet.list_running()
    trial.fleet.stop_worker(slow)
    return len(slow.embedded_words)


def fetch_members(trial: FaultTrial) -> set[str]:
    admin = AdminClient({"bootstrap.servers": trial.fleet.settings.bootstrap_servers})
    group = trial.fleet.settings.topic_prefix + GROUP
    return {
        member.member_id
        for member in admin.describe_consumer_groups([group])[group].result().members
    }


FAULT = Fault("a handler slower than 3 × max.poll.interval", inject, duration_share=1.5)
