"""A server that speaks OpenAI's interface, and fails when told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from sql.embedded import EmbeddedPostgres
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.journey.remote.library import Desk, Library, desk_of, filled, settings_for
from tests.postgres_fixture import cloned, elsewhere


@pytest.fixture(scope="module")
def library(postgres_server: EmbeddedPostgres, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with fake_openai(api_key="") as fake, contextmanager(cloned)(postgres_server.dsn, template_database) as dsn:
        settings = settings_for(fake, tmp_path_factory.mktemp("data"))
        profile = settings.data_dir / "profiles" / "quick.yaml"
        profile.parent.mkdir(parents=True)
        profile.write_text("answer: {timeout_s: 0.3}\nrerank: {timeout_s: 0.3}\nsemantic: {timeout_s: 0.3}\n")
        (profile.parent / "bold.yaml").write_text("answer: {refuse: false}\n")
        yield Library(fake, dsn, settings, elsewhere(lambda: filled(fake, settings, dsn)))


@pytest.fixture
async def desk(library: Library) -> AsyncIterator[Desk]:
    async with desk_of(library) as found:
        yield found


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai() as server:
        yield server
