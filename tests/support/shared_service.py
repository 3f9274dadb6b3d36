"""A service that one process of a test run starts for all of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres_fixture import lock_file


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def find_run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that is the same for all processes of the run and for no other run."""
    folder = tmp_path_factory.getbasetemp()
    # Below pytest-xdist each process has a folder of its own in the run's folder.
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


@contextmanager
def share_service(
    run_folder: Path, name: str, start: Callable[[], AbstractContextManager[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yield the description of the service. The first process starts it, and stops it after the
    others left.
    """
    users, place = run_folder / f"{name}-users", run_folder / f"{name}.json"
    user = users / str(os.getpid())
    with ExitStack() as own_service:
        with lock_file(run_folder / f"{name}-lock"):
            users.mkdir(exist_ok=True)
            is_starter = not place.exists()
            if is_starter:
                place.write_text(json.dumps(own_service.enter_context(start())))
            user.touch()
        try:
            yield dict(json.loads(place.read_text()))
        finally:
            user.unlink()
            # A process that was killed has left its file.
            while is_starter and any(is_running(int(one.name)) for one in users.iterdir()):
                time.sleep(0.1)
            if is_starter:
                place.unlink()
