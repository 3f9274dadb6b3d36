"""Saved questions: asked again when a document could matter, published, and delivered once."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from anabranch.config.overrides import Overrides
from anabranch.config.settings import Settings
from schemas.events import AnswerChanged
from schemas.timestamps import utc_now
from services.query import standing_questions
from services.query.event_buffer import QueryEventBuffer
from sql.database import Pool
from tests.support.api_world import ApiWorld, run_system
from tests.support.eventually import eventually
from tests.support.lineage import NOTE, QUESTION
from tests.support.log_backends import long_on_kafka

REVISED = NOTE.replace("74 euros", "81 euros")
UNRELATED = "# Gardens\n\nThe roses of the garden are cut in February by the gardener.\n"


@dataclass
class HookSite:
    """A web server of the test; it answers with `statuses` in turn, then 204."""

    url: str
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    """Path `/slow` answers once it is set."""


@pytest.fixture
def site() -> Iterator[HookSite]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            if self.path == "/slow":
                found.hangs.wait(30)
            self.send_response(found.statuses.pop(0) if found.statuses else 204)
            if self.path == "/redirect":
                self.send_header("location", "http://169.254.169.254/latest/meta-data")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = HookSite(f"http://127.0.0.1:{server.server_port}/hook")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield found
    found.hangs.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_questions, "POLL_S", 0.05)
    monkeypatch.setattr("services.query.web_hooks.FIRST_PAUSE_S", 0.05)


@pytest.fixture
async def world(
    settings: Settings, database: str, overrides: Overrides, site: HookSite
) -> AsyncIterator[ApiWorld]:
    host = site.url.removeprefix("http://").removesuffix("/hook")
    ingest = settings.ingest.model_copy(update={"url_allow": (host,)})
    async with run_system(
        settings.model_copy(update={"ingest": ingest}), database, overrides
    ) as found:
        yield found


async def save(world: ApiWorld, **fields: Any) -> dict[str, Any]:
    """Save the question and wait until it was asked."""
    response = await world.http.post("/v1/questions", json={"query": QUESTION, **fields})
    assert response.status_code == 201, response.text
    await wait_until_asked(world, response.json()["question_id"])
    return dict(response.json())


async def wait_until_asked(world: ApiWorld, question: str, after: str = "") -> dict[str, Any]:
    found = await eventually(
        lambda: world.fetch_json(f"/v1/questions/{question}"),
        lambda one: one and one["answered_at"] and one["answered_at"] > after,
        what="an answer",
    )
    return dict(found)


async def wait_for_change(
    world: ApiWorld, question: str, delivery: str | None = "delivered", count: int = 1
) -> dict[str, Any]:
    page = await eventually(
        lambda: world.fetch_json(f"/v1/questions/{question}/changes"),
        lambda found: len(found["items"]) == count and found["items"][0]["delivery"] == delivery,
        what="a change",
    )
    return dict(page["items"][0])


@long_on_kafka
async def test_changed_answer_is_published_and_delivered_once(
    world: ApiWorld, site: HookSite
) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances", title="Allowances")
    question = await save(world, hook_url=site.url)
    secret = base64.b64decode(question["hook_secret"].removeprefix("whsec_"))
    first = await wait_until_asked(world, question["question_id"])
    # What has nothing to do with the question does not ask it again.
    await world.ingest_until_searchable(UNRELATED, external_id="gardens")
    await world.ingest_until_searchable(REVISED, external_id="allowances", title="Allowances")
    change = await wait_for_change(world, question["question_id"])
    assert change["change"]["causes"][0] == "document"
    assert set(change["change"]["changes"]) == {"answer", "citations"}
    assert change["change"]["previous_run_id"] == first["run_id"]
    [(headers, body)] = site.requests
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    assert f"v1,{expected}" in headers["webhook-signature"].split(" ")
    message = json.loads(body)
    assert message["type"] == "answer.changed" and message["data"]["question"] == QUESTION
    assert "74 euros" in message["data"]["then"]["answer"].replace("*", "")
    assert "81 euros" in message["data"]["now"]["answer"].replace("*", "")
    assert "changed from revision 1 to 2" in json.dumps(message["data"]["reasons"])
    # The same over the log, and without a text of the answer.
    events = (await world.fetch_json("/v1/events", topics="answers"))["items"]
    assert [event["type"] for event in events] == ["answer.changed.v1"]
    assert events[0]["data"]["run_id"] == change["change"]["run_id"]
    assert "euros" not in json.dumps(events)
    # A withdrawn document changes it too.
    await world.http.delete(f"/v1/documents/{change['change']['documents'][0]}")
    removed = await wait_for_change(world, question["question_id"], count=2)
    assert "refusal" in removed["change"]["changes"] and len(site.requests) == 2


async def test_replay_and_rebuild_report_no_change(world: ApiWorld, site: HookSite) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    question = await save(world, hook_url=site.url)
    asked = await wait_until_asked(world, question["question_id"])
    await world.ingest_until_searchable(f"{NOTE}\nA remark.\n", external_id="allowances")
    again = await wait_until_asked(world, question["question_id"], asked["answered_at"])
    assert again["changed_at"] is None and again["run_id"] != asked["run_id"]
    # The answer would be another one now, as by a profile that was edited: only a document asks.
    pool = world.worker.storage.pool
    await pool.execute("update standing_questions set request = request || $1", {"query": "Who?"})
    for stage in ("receive", "transcribe", "index"):
        replay = (await world.http.post("/v1/replays", json={"stage": stage})).json()["replay_id"]
        await _wait_for_state(world, f"/v1/replays/{replay}", "done")
    rebuild = {"purpose": "rebuild", "keep_previous": False}
    assert (await world.http.post("/v1/generations", json=rebuild)).status_code in (200, 202)
    await eventually(
        lambda: pool.fetchval("select name from live_generation"), lambda name: name == "g2"
    )
    still = await wait_until_asked(world, question["question_id"], again["answered_at"])
    assert still["changed_at"] is None and site.requests == []
    # A projected event of another history adds its row without a delivery.
    await _publish_change(world, question["question_id"])
    change = await wait_for_change(world, question["question_id"], delivery=None)
    assert change["attempts"] == 0 and site.requests == []
    assert (
        await pool.fetchval("select count(*) from answer_changes where delivery = 'pending'") == 0
    )


async def _wait_for_state(world: ApiWorld, path: str, state: str) -> None:
    await eventually(lambda: world.fetch_json(path), lambda one: one and one["state"] == state)


async def _publish_change(world: ApiWorld, question: str) -> None:
    from services.publishing import EventPublisher

    storage = world.worker.storage
    data = AnswerChanged(
        change_id=UUID(int=1),
        question_id=UUID(question),
        tenant="default",
        changed_at=utc_now(),
        previous_run_id=UUID(int=2),
        run_id=UUID(int=3),
        changes=["answer"],
        causes=["document"],
        documents=[],
    )
    publisher = EventPublisher(storage.log, storage.codec)
    await publisher.publish(data, "test", question, UUID(int=1), tenant="default")


async def test_answer_counts_once_the_log_has_its_run(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = list[str]()

    async def refuse(buffer: QueryEventBuffer) -> bool:
        pending[:] = [event.name for event in buffer.pending]
        return False

    with monkeypatch.context() as patch:
        patch.setattr(QueryEventBuffer, "_try_send", refuse)
        saved = await world.http.post("/v1/questions", json={"query": QUESTION})
        await eventually(lambda: "query.answered" in pending, what="an answer")
        await asyncio.sleep(0.5)
        # A process that is killed now loses the run, but not what the next answer is compared with.
        path = f"/v1/questions/{saved.json()['question_id']}"
        assert (await world.fetch_json(path))["answered_at"] is None
    await wait_until_asked(world, saved.json()["question_id"])


async def test_answer_of_an_outage_is_no_change(
    world: ApiWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_questions, "RETRY_S", 0.5)
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    question = await save(world)
    path = f"/v1/questions/{question['question_id']}"
    with monkeypatch.context() as patch:
        # Of the answer that is compared, not of the one before.
        failures = iter([set[str](), {"the chat model"}] * 100)
        patch.setattr(standing_questions, "list_failures", lambda _: next(failures))
        await world.ingest_until_searchable(REVISED, external_id="allowances")
        found = await eventually(lambda: world.fetch_json(path), lambda one: one["problem"])
        assert found["problem"]["detail"] == "The answer lacks the chat model."
        assert (await world.fetch_json(f"{path}/changes"))["items"] == []
    await wait_for_change(world, question["question_id"], delivery=None)


async def test_failing_hook_is_retried_then_listed_and_redelivered(
    world: ApiWorld, site: HookSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.query.web_hooks.MAX_ATTEMPTS", 2)
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    question = await save(world, hook_url=site.url)
    site.statuses = [500, 503]
    await world.ingest_until_searchable(REVISED, external_id="allowances")
    failed = await wait_for_change(world, question["question_id"], delivery="failed")
    assert failed["attempts"] == 2 and "503" in failed["delivery_error"]
    path = f"/v1/questions/{question['question_id']}/redeliver"
    assert (await world.http.post(path)).json()["items"][0]["delivery"] != "failed"
    await wait_for_change(world, question["question_id"])
    ids = {headers["webhook-id"] for headers, _ in site.requests}
    assert len(site.requests) == 3 and ids == {failed["change"]["change_id"]}


async def test_slow_hook_delays_no_other_delivery(
    world: ApiWorld, site: HookSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.query.web_hooks.SEND_TIMEOUT_S", 60.0)
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    slow = await save(world, hook_url=site.url.replace("/hook", "/slow"))
    other = await save(world, hook_url=site.url)
    await world.ingest_until_searchable(REVISED, external_id="allowances")
    await eventually(lambda: _count(site), lambda count: count >= 2, what="two requests")
    await wait_for_change(world, other["question_id"])
    await wait_for_change(world, slow["question_id"], delivery="pending")
    assert len((await world.fetch_json("/v1/events", topics="answers"))["items"]) == 2
    site.hangs.set()
    await wait_for_change(world, slow["question_id"])


async def test_hook_that_does_not_answer_is_retried(
    world: ApiWorld, site: HookSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.query.web_hooks.SEND_TIMEOUT_S", 0.3)
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    question = await save(world, hook_url=site.url.replace("/hook", "/slow"))
    await world.ingest_until_searchable(REVISED, external_id="allowances")
    page = await eventually(
        lambda: world.fetch_json(f"/v1/questions/{question['question_id']}/changes"),
        lambda found: found["items"] and found["items"][0]["delivery_error"],
    )
    assert "within 0.3 s" in page["items"][0]["delivery_error"]
    site.hangs.set()
    monkeypatch.setattr("services.query.web_hooks.SEND_TIMEOUT_S", 60.0)
    assert (await wait_for_change(world, question["question_id"]))["attempts"] > 1


async def test_hook_may_not_reach_private_addresses(world: ApiWorld, site: HookSite) -> None:
    for url in (
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:127.0.0.1]/",
        "http://127.0.0.1:1/",
        "http://example.com/hook",
        "file:///etc/passwd",
        "https://user@0x7f000001/",
        "https://[fe80::1%eth0]/",
        "https://xn--/",
    ):
        response = await world.http.post("/v1/questions", json={"query": QUESTION, "hook_url": url})
        assert (response.status_code, response.json()["code"]) == (422, "FORBIDDEN_ADDRESS"), url
    # A redirect is not followed: it would lead past the check.
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    question = await save(world, hook_url=site.url.replace("/hook", "/redirect"))
    site.statuses = [307] * 20
    await world.ingest_until_searchable(REVISED, external_id="allowances")
    await eventually(lambda: _count(site), lambda count: count > 0, what="a request")
    page = await eventually(
        lambda: world.fetch_json(f"/v1/questions/{question['question_id']}/changes"),
        lambda found: found["items"] and found["items"][0]["delivery_error"],
    )
    assert "307" in page["items"][0]["delivery_error"]
    # Recorded before the rules were as strict: checked again before each delivery.
    for url, error in (
        ("https://10.0.0.1/", "10.0.0.1:443 is not a public address"),
        ("https://example.com:0/secret", "The address has an invalid port."),
    ):
        await world.worker.storage.pool.execute(
            "update standing_questions set request = request || $1::jsonb", {"hook_url": url}
        )
        await world.http.post(f"/v1/questions/{question['question_id']}/redeliver")
        forbidden = await wait_for_change(world, question["question_id"], delivery="failed")
        assert error in forbidden["delivery_error"]


async def _count(site: HookSite) -> int:
    return len(site.requests)


async def create_key(
    world: ApiWorld, user: str | None = None, tenant: str = "default"
) -> tuple[str, dict[str, str]]:
    """Return the id of a new key and the headers that use it."""
    response = await world.http.post(
        "/v1/keys",
        json={"name": "test", "role": "writer", "user": user},
        headers={"X-Anabranch-Tenant": tenant},
    )
    assert response.status_code == 201, response.text
    body = response.json()
    return body["id"], {"Authorization": f"Bearer {body['key']}"}


async def test_question_is_asked_with_the_rights_of_its_owner(world: ApiWorld) -> None:
    key, ana = await create_key(world, user="ana")
    _, bob = await create_key(world, user="bob")
    _, other = await create_key(world, tenant="other")
    await world.ingest_until_searchable(NOTE, external_id="public")
    response = await world.http.post("/v1/questions", json={"query": QUESTION}, headers=ana)
    question = response.json()["question_id"]
    asked = await wait_until_asked(world, question)
    path = f"/v1/questions/{question}"
    # Neither another tenant nor another limited caller sees it, or may change it.
    for headers in (bob, other):
        assert (await world.http.get(path, headers=headers)).status_code == 404
        assert (await world.http.get(f"{path}/changes", headers=headers)).status_code == 404
        assert (await world.http.post(f"{path}/redeliver", headers=headers)).status_code == 404
        assert (await world.http.delete(path, headers=headers)).status_code == 404
        assert (await world.http.get("/v1/questions", headers=headers)).json()["items"] == []
    # A document that its owner may not read does not even ask it.
    secret = NOTE.replace("74 euros", "99 euros")
    restricted = await world.http.post(
        "/v1/ingest", json={"text": secret, "external_id": "secret", "readers": ["user:bob"]}
    )
    await world.wait_until_final(restricted.json())
    open_note = NOTE.replace("74 euros", "81 euros")
    await world.ingest_until_searchable(open_note, external_id="public")
    change = await wait_for_change(world, question, delivery=None)
    run = await world.fetch_json(f"/v1/runs/{change['change']['run_id']}")
    assert "81 euros" in json.dumps(run) and "99 euros" not in json.dumps(run)
    assert change["change"]["previous_run_id"] == asked["run_id"]
    # Questions of a revoked key are no longer asked.
    assert (await world.http.delete(f"/v1/keys/{key}")).status_code == 200
    await world.ingest_until_searchable(NOTE, external_id="public")
    await eventually(
        lambda: world.fetch_json(path), lambda one: one["is_due"], what="a question that is due"
    )
    assert (await world.fetch_json(f"{path}/changes"))["items"][0] == change


async def test_deleted_question_and_erased_tenant_leave_no_text(world: ApiWorld) -> None:
    await world.ingest_until_searchable(NOTE, external_id="allowances")
    kept, deleted = await save(world), await save(world)
    assert (await world.http.delete(f"/v1/questions/{deleted['question_id']}")).status_code == 200
    listed = (await world.fetch_json("/v1/questions"))["items"]
    assert [one["question_id"] for one in listed] == [kept["question_id"]]
    receipt = await world.http.post("/v1/erasures", json={"scope": "tenant", "name": "default"})
    await eventually(
        lambda: world.fetch_json(f"/v1/erasures/{receipt.json()['receipt_id']}"),
        lambda found: found["state"] == "done",
    )
    pool: Pool = world.worker.storage.pool
    for table in ("standing_questions", "standing_terms", "answer_changes"):
        assert await pool.fetchval(f"select count(*) from {table}") == 0
    assert (
        await pool.fetchval(
            "select count(*) from keystore.keys where subject = any($1) and destroyed_at is null",
            [UUID(kept["question_id"]), UUID(deleted["question_id"])],
        )
        == 0
    )


async def test_question_of_a_missing_profile_names_its_problem(
    world: ApiWorld, tmp_path: Path
) -> None:
    unknown = await world.http.post("/v1/questions", json={"query": QUESTION, "profile": "x"})
    assert unknown.json()["code"] == "UNKNOWN_PROFILE"
    question = await save(world)
    await world.worker.storage.pool.execute(
        """update standing_questions set due_at = now(), request = request || '{"profile": "x"}'"""
    )
    found = await eventually(
        lambda: world.fetch_json(f"/v1/questions/{question['question_id']}"),
        lambda one: one["problem"],
    )
    assert found["problem"]["code"] == "UNKNOWN_PROFILE" and not found["is_due"]
