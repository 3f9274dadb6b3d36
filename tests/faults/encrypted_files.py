"""Twenty encrypted PDFs in a row: what nobody can read is buried, and stops no worker, however much of it there is."""

from __future__ import annotations

import base64

from tests.faults.trial import Fault, Trial
from tests.journey.bad_files import encrypted_pdf
from tests.workload import Event, received_content

IN_A_ROW = 20
CODE = "ENCRYPTED_DOCUMENT"


def strike(trial: Trial) -> int:
    trial.staffed()
    content = {"base64": base64.b64encode(encrypted_pdf()).decode()}
    trial.feed_to(0.5)
    for number in trial.rounds(10.0):
        locked = [in_one_row(received_content(f"locked-{number}-{place}", 0, content)) for place in range(IN_A_ROW)]
        trial.send(locked)
        trial.also_buried |= {(headers["ce_id"], CODE) for _, headers, _ in locked}
        trial.heard(len(trial.sent))
    return len(trial.also_buried)


def in_one_row(event: Event) -> Event:
    """In one partition, with nothing between."""
    _, headers, value = event
    return "a row", headers, value


FAULT = Fault("twenty encrypted PDFs in a row", strike)
