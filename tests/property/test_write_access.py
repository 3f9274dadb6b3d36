"""A caller who cannot read a document never changes or learns anything of it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from anabranch.config.loader import load_settings
from sql.embedded.server import EmbeddedPostgres
from tests.support.limited_callers import READERS_BY_USER, LimitedCallers, open_limited_callers
from tests.support.pipeline import null_overrides
from tests.support.postgres_fixture import clone_database

USERS = st.sampled_from(list(READERS_BY_USER))
NAMES = st.sampled_from("ab")
READERS = st.sampled_from([None, [], ["user:ana"], ["user:bob"], ["group:board", "user:bob"]])
T = TypeVar("T")


class WriteAccessMachine(RuleBasedStateMachine):
    """`texts` and `readers` are the documents as they should be; a name without text is free."""

    template: tuple[str, str]

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="anabranch-access-"))
        self.database = contextmanager(clone_database)(*self.template)
        self.loop = asyncio.new_event_loop()
        loaded = load_settings(data_dir=self.folder, sets=["logging.level=error"])
        self.system = open_limited_callers(loaded, self.database.__enter__(), null_overrides())
        self.callers: LimitedCallers = self.run(self.system.__aenter__())
        self.ids: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.readers: dict[str, list[str] | None] = {}
        self.amended: set[str] = set()
        self.n_texts = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def may_read(self, user: str, name: str) -> bool:
        names, readers = READERS_BY_USER[user], self.readers.get(name)
        return names is None or readers is None or bool(set(names) & set(readers))

    def check(self, response: httpx2.Response, expected: int, code: str | None = None) -> bool:
        """Wait for the outcome of an accepted request; return whether it was accepted."""
        assert response.status_code == expected, (response.text, self.texts, self.readers)
        if expected == 202:
            self.run(self.callers.wait_until_final(response))
        elif code is not None:
            assert response.json()["code"] == code
        return expected == 202

    @rule(user=USERS, name=NAMES, readers=READERS)
    def ingest(self, user: str, name: str, readers: list[str] | None) -> None:
        self.n_texts += 1
        text = f"Text {self.n_texts} of {user}."
        fields = {"readers": readers} if readers is not None else {}
        response = self.run(self.callers.ingest(user, text=text, external_id=name, **fields))
        # The readers of a withdrawn document still protect its id.
        if self.check(response, 202 if self.may_read(user, name) else 422, "EXTERNAL_ID_TAKEN"):
            self.ids[name] = response.json()["document_id"]
            self.texts[name] = text
            # Amended readers hold for revisions that state none.
            if readers is not None or name not in self.amended:
                self.readers[name] = readers
                self.amended.discard(name)

    @rule(user=USERS, name=NAMES, readers=READERS)
    def amend(self, user: str, name: str, readers: list[str] | None) -> None:
        if name not in self.ids:
            return
        fields = {"readers": readers} if readers is not None else {"tags": ["seen"]}
        response = self.run(self.callers.amend(user, self.ids[name], **fields))
        is_allowed = name in self.texts and self.may_read(user, name)
        if self.check(response, 202 if is_allowed else 404) and readers is not None:
            self.readers[name] = readers
            self.amended.add(name)

    @rule(user=USERS, name=NAMES)
    def withdraw(self, user: str, name: str) -> None:
        if name not in self.ids:
            return
        response = self.run(self.callers.withdraw(user, self.ids[name]))
        is_known = name in self.readers and self.may_read(user, name)
        if self.check(response, 202 if is_known else 404):
            self.texts.pop(name, None)
            self.amended.discard(name)

    @rule(user=USERS, name=NAMES)
    def erase(self, user: str, name: str) -> None:
        if name not in self.texts:
            return
        response = self.run(
            self.callers.request(
                user, "POST", "/v1/erasures", scope="document", name=self.ids[name]
            )
        )
        if user != "admin":
            assert response.status_code in (403, 404), response.text
            return
        assert response.status_code == 202, response.text
        self.run(self.callers.wait_until_erased(response))
        del self.texts[name], self.readers[name]
        self.amended.discard(name)

    @invariant()
    def readers_alone_see_documents(self) -> None:
        for name, document in self.ids.items():
            for user in READERS_BY_USER:
                text = self.run(self.callers.fetch(user, document, "/markdown"))
                shown = self.run(self.callers.fetch(user, document))
                if name in self.texts and self.may_read(user, name):
                    assert text.text == self.texts[name]
                    assert shown.status_code == 200
                else:
                    assert text.status_code == 404, (user, text.text)
                if not self.may_read(user, name):
                    assert shown.status_code == 404, (user, shown.text)
                    # Attempted after every step, since each caller may have had access before.
                    for attempt in (
                        self.callers.amend(user, document, readers=[f"user:{user}"]),
                        self.callers.withdraw(user, document),
                    ):
                        assert self.run(attempt).status_code == 404, user

    def teardown(self) -> None:
        self.run(self.system.__aexit__(None, None, None))
        self.loop.close()
        self.database.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)


def test_caller_without_access_changes_and_learns_nothing(
    postgres_server: EmbeddedPostgres, template_database: str
) -> None:
    class Machine(WriteAccessMachine):
        template = (postgres_server.dsn, template_database)

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=4,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
