"""Run the whole system in this process with a model that answers at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from anabranch.process.database import POSTGRES_FOLDER
from sql.embedded.server import EmbeddedPostgres
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_world import ApiWorld, run_system
from tests.support.limited_callers import LimitedCallers, open_limited_callers
from tests.support.shared_sandbox import sandbox_thread, shared_sandbox

__all__ = ["sandbox_thread", "shared_sandbox"]


@pytest.fixture
def settings(tmp_path: Path, log_settings: list[str]) -> Settings:
    return load_settings(data_dir=tmp_path / "data", sets=["logging.level=error", *log_settings])


@pytest.fixture
def overrides() -> Overrides:
    return Overrides(embedder=NullEmbedder(64, 16))


@pytest.fixture
async def world(settings: Settings, database: str, overrides: Overrides) -> AsyncIterator[ApiWorld]:
    async with run_system(settings, database, overrides) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a data folder for a server, and stop what still runs in it afterwards."""
    yield tmp_path / "data"
    if not (tmp_path / "data" / POSTGRES_FOLDER).exists():
        return
    server = EmbeddedPostgres(tmp_path / "data" / POSTGRES_FOLDER)
    if server.is_running:
        server.stop()


@pytest.fixture
async def callers(
    settings: Settings, database: str, overrides: Overrides
) -> AsyncIterator[LimitedCallers]:
    async with open_limited_callers(settings, database, overrides) as found:
        yield found
