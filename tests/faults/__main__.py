"""Try every fault on real Kafka and Postgres: `python -m tests.faults --seed 7 --minutes 10`. Ends with 1 where one does not hold."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from functools import partial
from pathlib import Path

from tests.faults.ground import Ground
from tests.faults.run import FAULTS, Run
from tests.faults.table import markdown, write
from tests.kafka_fixture import own_broker
from tests.postgres_fixture import own_postgres

say = partial(print, file=sys.stderr, flush=True)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped and folders removed all the same
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long it may take")
    parser.add_argument("--only", default="", metavar="PATTERN", help="faults whose name matches this regular expression")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    given = parser.parse_args()
    faults = [fault for fault in FAULTS if re.search(given.only, fault.name)]
    with own_broker() as broker, own_postgres() as server:
        rows = Run(Ground(broker, server), given.seed, given.minutes, say).all(faults)
    print(markdown(rows))
    if given.write is not None:
        write(given.write, rows)
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
