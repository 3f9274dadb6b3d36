"""A fake OpenAI server with injectable faults."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest

from sql.embedded.server import EmbeddedPostgres
from tests.fakes.openai_server import FakeOpenAI, fake_openai
from tests.journey.remote.corpus import (
    ApiStack,
    IndexedCorpus,
    ingest_corpus,
    make_settings,
    open_api_stack,
)
from tests.support.postgres_fixture import clone_database, run_in_thread


@pytest.fixture(scope="module")
def corpus(
    postgres_server: EmbeddedPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[IndexedCorpus]:
    with (
        fake_openai(api_key="") as fake,
        contextmanager(clone_database)(postgres_server.dsn, template_database) as dsn,
    ):
        settings = make_settings(fake, tmp_path_factory.mktemp("data"))
        profiles = settings.data_dir / "profiles"
        profiles.mkdir(parents=True)
        # A profile gives up one step alone: on a busy machine the others may take this long.
        for step in ("answer", "rerank", "semantic"):
            (profiles / f"quick-{step}.yaml").write_text(f"{step}: {{timeout_s: 0.3}}\n")
        (profiles / "bold.yaml").write_text("answer: {refuse: false}\n")
        yield IndexedCorpus(
            fake, dsn, settings, run_in_thread(lambda: ingest_corpus(fake, settings, dsn))
        )


@pytest.fixture
async def stack(corpus: IndexedCorpus) -> AsyncIterator[ApiStack]:
    async with open_api_stack(corpus) as found:
        yield found


@pytest.fixture
def fake() -> Iterator[FakeOpenAI]:
    with fake_openai() as server:
        yield server
