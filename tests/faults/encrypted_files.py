"""Twenty encrypted PDFs in a row are dead-lettered and stop no worker."""

from __future__ import annotations

import base64

from tests.faults.trial import Fault, FaultTrial
from tests.support.broken_files import make_encrypted_pdf
from tests.support.workload import KafkaEvent, make_received_content

BATCH_SIZE = 20
CODE = "ENCRYPTED_DOCUMENT"


def inject(trial: FaultTrial) -> int:
    trial.start_workers()
    content = {"base64": base64.b64encode(make_encrypted_pdf()).decode()}
    trial.push_share(0.5)
    for number in trial.get_rounds(10.0):
        encrypted_events = [
            to_single_partition(make_received_content(f"locked-{number}-{place}", 0, content))
            for place in range(BATCH_SIZE)
        ]
        trial.push(encrypted_events)
        trial.expected_dead_letters |= {
            (headers["ce_id"], CODE) for _, headers, _ in encrypted_events
        }
        trial.wait_for_outcomes(len(trial.sent_ids))
    return len(trial.expected_dead_letters)


def to_single_partition(event: KafkaEvent) -> KafkaEvent:
    """Give the event the key that all encrypted files share."""
    _, headers, value = event
    return "a row", headers, value


FAULT = Fault("twenty encrypted PDFs in a row", inject)
