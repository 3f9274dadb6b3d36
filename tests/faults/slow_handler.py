"""A handler that takes more than three times as long as a consumer may go without polling, with every partition full meanwhile: no worker loses its place."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from streams.partition import Bounds
from tests.faults.trial import Fault, Trial

POLL_S = 2.0
SLOW_S = 6.5
FEW = Bounds(queue_bytes=20_000)
GROUP = "anabranch.embed.g1"


def strike(trial: Trial) -> int:
    trial.staffed(2, pause_s=SLOW_S, max_poll_interval_s=POLL_S, bounds=FEW)
    trial.crew.await_members(GROUP, 2)
    before = members(trial)
    for number in (rounds := trial.rounds(2 * SLOW_S)):
        trial.feed_to((number + 1) / len(rounds))
        trial.heard(len(trial.sent))
    trial.expect(members(trial) == before, "a worker that was only slow has lost its place in the group")
    return sum(len(worker.embedded) for worker in trial.crew.workers)


def members(trial: Trial) -> set[str]:
    admin, group = AdminClient({"bootstrap.servers": trial.crew.settings.bootstrap_servers}), trial.crew.settings.topic_prefix + GROUP
    return {member.member_id for member in admin.describe_consumer_groups([group])[group].result().members}


FAULT = Fault("a handler slower than 3 × max.poll.interval", strike, share=1.5)
