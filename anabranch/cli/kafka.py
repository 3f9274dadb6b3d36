"""`anabranch kafka`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from anabranch.cli.errors import OK, UNREACHABLE
from anabranch.cli.options import CommonOptions
from anabranch.cli.output import print_stderr

app = App(
    name="kafka",
    help="Run a single Kafka node with this machine's Java.",
    result_action="return_value",
)
DEFAULT = CommonOptions()
KAFKA_FOLDER = "kafka"


@app.command
def start(
    *, port: int = 0, heap_mb: int = 512, jars: Path | None = None, common: CommonOptions = DEFAULT
) -> int:
    """Start the node of the data folder in the background.

    The first start downloads Kafka's jars with Maven, which takes about a minute.

    Parameters
    ----------
    port
        Port on the loopback address; 0 reuses the previous one or picks a free one.
    heap_mb
        Heap size of the JVM in MiB.
    jars
        Folder with Kafka's jars. [default: in the user's cache]
    """
    from streams.kafka.broker import Broker

    broker = Broker(_resolve_folder(common), port=port, heap_mb=heap_mb, jars_dir=jars)
    print_stderr("starting Kafka…", quiet=common.quiet)
    asyncio.run(broker.start())
    servers = broker.bootstrap_servers
    return common.show(
        {"running": True, "bootstrap_servers": servers},
        lambda: print(f"export ANABRANCH_KAFKA__BOOTSTRAP_SERVERS={servers}"),
    )


@app.command
def stop(*, common: CommonOptions = DEFAULT) -> int:
    """Stop the node of the data folder."""
    from streams.kafka.broker import Broker

    broker = Broker(_resolve_folder(common))
    was_running = broker.status().is_running
    asyncio.run(broker.stop())
    return common.acknowledge(
        {"running": False},
        "stopped" if was_running else f"no Kafka was running in {_resolve_folder(common)}",
    )


@app.command
def status(*, common: CommonOptions = DEFAULT) -> int:
    """Show whether the node runs, and its address. Exits 7 if it does not run."""
    from streams.kafka.broker import Broker

    broker_status = Broker(_resolve_folder(common)).status()
    if common.is_json:
        common.print_result(
            {
                "running": broker_status.is_running,
                "pid": broker_status.pid,
                "bootstrap_servers": broker_status.bootstrap_servers,
                "log_file": broker_status.log_file,
            }
        )
    else:
        print(
            f"running at {broker_status.bootstrap_servers} (pid {broker_status.pid})"
            if broker_status.is_running
            else "not running"
        )
    return OK if broker_status.is_running else UNREACHABLE


def _resolve_folder(common: CommonOptions) -> Path:
    from anabranch.process.data_folder import check_data_folder

    folder = common.load_settings().data_dir
    check_data_folder(folder)
    return folder / KAFKA_FOLDER
