"""Settings of a pipeline on the log that the test names, and a searchable database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.config.loader import load_settings
from anabranch.config.settings import Settings
from tests.support.search_stack import SearchStack, open_search_stack
from tests.support.shared_sandbox import sandbox_thread as sandbox_thread
from tests.support.shared_sandbox import shared_sandbox as shared_sandbox


@pytest.fixture
def settings(tmp_path: Path, database: str, log_settings: list[str]) -> Settings:
    """Return the settings with the database's DSN, for commands of other processes."""
    return load_settings(data_dir=tmp_path, sets=[f"database.url={database}", *log_settings])


@pytest.fixture
async def stack(database: str) -> AsyncIterator[SearchStack]:
    async with open_search_stack(database) as opened:
        yield opened
