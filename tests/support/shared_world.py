"""One system for all tests of a module, each of which looks only at documents of its own.

A module that imports `world` replaces the system of each test, which costs half a second of CPU. It
runs in one event loop: `pytestmark = pytest.mark.asyncio(loop_scope="module")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from anabranch.config.loader import load_settings
from anabranch.config.overrides import Overrides
from sql.embedded.server import EmbeddedPostgres
from tests.fakes.null_embedder import NullEmbedder
from tests.support.api_world import ApiWorld, run_system
from tests.support.postgres_fixture import clone_database


@pytest.fixture(scope="module")
def module_database(postgres_server: EmbeddedPostgres, template_database: str) -> Iterator[str]:
    yield from clone_database(postgres_server.dsn, template_database)


@pytest.fixture(scope="module")
def world_sets() -> list[str]:
    """Return more settings of the system. A module may have a fixture of its own."""
    return []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    module_database: str, world_sets: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiWorld]:
    settings = load_settings(
        data_dir=tmp_path_factory.mktemp("data"), sets=["logging.level=error", *world_sets]
    )
    async with run_system(
        settings, module_database, Overrides(embedder=NullEmbedder(64, 16))
    ) as found:
        yield found
