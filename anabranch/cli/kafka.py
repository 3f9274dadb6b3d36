"""`anabranch kafka`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from anabranch.cli.exits import OK, UNREACHABLE
from anabranch.cli.options import Common
from anabranch.cli.output import say

app = App(name="kafka", help="A single Kafka node on this machine's Java.", result_action="return_value")
DEFAULT = Common()
FOLDER = "kafka"


@app.command
def start(*, port: int = 0, heap_mb: int = 512, jars: Path | None = None, common: Common = DEFAULT) -> int:
    """Start the node of the data folder; the first time Maven fetches Kafka's jars (about a minute). It goes on when this command ends.

    Parameters
    ----------
    port
        On the loopback address; 0 keeps that of last time, or takes a free one.
    heap_mb
        Java's memory.
    jars
        Folder of Kafka's jars. [default: in the user's cache]
    """
    from streams.kafka.broker import Broker

    broker = Broker(_folder(common), port=port, heap_mb=heap_mb, jars_dir=jars)
    say("starting Kafka…", quiet=common.quiet)
    asyncio.run(broker.start())
    if common.json:
        common.show({"running": True, "bootstrap_servers": broker.bootstrap_servers})
    else:
        print(f"export ANABRANCH_KAFKA__BOOTSTRAP_SERVERS={broker.bootstrap_servers}")
    return OK


@app.command
def stop(*, common: Common = DEFAULT) -> int:
    """Stop it."""
    from streams.kafka.broker import Broker

    broker = Broker(_folder(common))
    ran = broker.status().running
    asyncio.run(broker.stop())
    if common.json:
        common.show({"running": False})
    else:
        say("stopped" if ran else f"no Kafka runs in {_folder(common)}", quiet=common.quiet)
    return OK


@app.command
def status(*, common: Common = DEFAULT) -> int:
    """Does it run, and where? Exits 7 when it does not."""
    from streams.kafka.broker import Broker

    found = Broker(_folder(common)).status()
    if common.json:
        common.show({"running": found.running, "pid": found.pid, "bootstrap_servers": found.bootstrap_servers, "log_file": found.log_file})
    else:
        print(f"running at {found.bootstrap_servers} (pid {found.pid})" if found.running else "not running")
    return OK if found.running else UNREACHABLE


def _folder(common: Common) -> Path:
    from anabranch.process.data_folder import check_ours

    folder = common.settings().data_dir
    check_ours(folder)
    return folder / FOLDER
