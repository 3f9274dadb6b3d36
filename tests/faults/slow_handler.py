"""A handler that takes more than three times as long as a consumer may go without polling, with every partition full meanwhile: no worker loses its place."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from streams.partition import Bounds
from tests.faults.trial import Fault, Trial

POLL_S = 2.0
SLOW_S = 6.5
FEW = Bounds(queue_bytes=5_000)
PORTION = 20
"""Events of a round."""
GROUP = "anabranch.embed.g1"


def strike(trial: Trial) -> int:
    trial.staffed(pause_s=SLOW_S, max_poll_interval_s=POLL_S, bounds=FEW)
    trial.crew.await_members(GROUP, 1)
    before = members(trial)
    for _ in trial.rounds(2 * SLOW_S):
        trial.feed(PORTION)
        trial.heard(len(trial.sent))
    trial.expect(members(trial) == before, "a worker that was only slow has lost its place in the group")
    (slow,) = trial.crew.alive()
    trial.crew.dismiss(slow)
    return len(slow.embedded)


def members(trial: Trial) -> set[str]:
    admin, group = AdminClient({"bootstrap.servers": trial.crew.settings.bootstrap_servers}), trial.crew.settings.topic_prefix + GROUP
    return {member.member_id for member in admin.describe_consumer_groups([group])[group].result().members}


FAULT = Fault("a handler slower than 3 × max.poll.interval", strike, share=1.5)
