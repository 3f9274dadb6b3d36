"""Run every fault on real Kafka and Postgres: `python -m tests.faults --seed 7 --minutes 12`.

Exits with 1 if an invariant is violated.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from functools import partial
from pathlib import Path

from tests.faults.environment import FaultEnvironment
from tests.faults.report import format_await_coverage, format_fault_table, write_table
from tests.faults.suite import FAULTS, FaultSuite
from tests.support.kafka_fixture import run_broker
from tests.support.postgres_fixture import run_postgres

log_progress = partial(print, file=sys.stderr, flush=True)


def main() -> int:
    # `sys.exit` unwinds, so that servers are stopped and folders removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=12.0, help="approximate duration")
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="only run faults whose name matches this regular expression",
    )
    parser.add_argument(
        "--write", type=Path, metavar="PAGE", help="write the results into this page"
    )
    arguments = parser.parse_args()
    faults = [fault for fault in FAULTS if re.search(arguments.only, fault.name)]
    with run_broker() as broker, run_postgres() as server:
        rows = FaultSuite(
            FaultEnvironment(broker, server), arguments.seed, arguments.minutes, log_progress
        ).run_all(faults)
    print(format_fault_table(rows))
    for row in rows:
        if row.await_coverage is not None:
            print(f"\n{format_await_coverage(row.await_coverage)}")
    if arguments.write is not None:
        write_table(arguments.write, rows)
    return int(not all(row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
