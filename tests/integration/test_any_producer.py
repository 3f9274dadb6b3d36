"""Documents from a program that imports nothing of ours, and what it learns of them: every form, order and mistake that Kafka lets through."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import jsonschema
import pytest

from schemas.ids import document_id
from streams.kafka.settings import KafkaSettings
from tests.integration.cluster import Cluster, cluster, until
from tests.journey.bad_files import encrypted_pdf, pdf
from tests.postgres_fixture import cloned

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.kafka

PROGRAM = Path(__file__).with_name("foreign_producer.py")
RECEIVED, WITHDRAWN = "document.received.v1", "document.withdrawn.v1"
INDEXED, FAILED, SUPERSEDED, REMOVED = "document.indexed.v1", "document.failed.v1", "document.superseded.v1", "document.removed.v1"
SOURCE = "shop/contracts"
Order = dict[str, Any]
Answer = dict[str, Any]


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "tides.html").write_text("<html><head><title>Tides</title></head><body><h1>Tides</h1><p>High water comes at noon.</p></body></html>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def system(kafka_bootstrap: str, postgres_server: Any, template_database: str, web: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker with all stages and the real parser, for all tests here: each has its own documents."""
    settings = KafkaSettings(kafka_bootstrap, topic_prefix=f"any-{uuid4().hex[:12]}.")
    with (
        contextmanager(cloned)(postgres_server.dsn, template_database) as dsn,
        cluster(settings, dsn, tmp_path_factory.mktemp("any"), ANABRANCH_INGEST__URL_ALLOW=web) as found,
    ):
        worker = found.start(real_parser=True)
        until(lambda: worker.ready, "the worker")
        yield found


def pushed(system: Cluster, *orders: Order, answers: int | None = None) -> list[Answer]:
    """What the foreign program heard, one answer an order unless said otherwise."""
    command = [sys.executable, "-I", str(PROGRAM), system.settings.bootstrap_servers, system.settings.topic_prefix]
    request = json.dumps({"events": orders, "answers": len(orders) if answers is None else answers})
    done = subprocess.run(command, input=request, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    found: list[Answer] = json.loads(done.stdout)
    for answer in found:
        jsonschema.validate(answer["data"], published(answer["type"]))
    return found


def published(event_type: str) -> Any:
    return json.loads((ROOT / f"docs/reference/events/{event_type}.json").read_text(encoding="utf-8"))


def order(event_id: str, data: Any, kind: str = RECEIVED, *, source: str = SOURCE, **how: Any) -> Order:
    """An event, checked as its producer would check it."""
    sequence = how.pop("sequence", None)
    jsonschema.validate(data, published(kind))
    attributes = {"id": event_id, "source": source, "type": kind} | ({} if sequence is None else {"sequence": str(sequence)})
    return {"attributes": attributes, "data": data, **how}


def document(name: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {"external_id": name, "content": {"text": text or f"# {name}\n\nThe weir was built in 1911."}, **more}


def by_event(answers: list[Answer]) -> dict[str, Answer]:
    found = {answer["data"]["event_id"]: answer for answer in answers}
    assert len(found) == len(answers), "each event is answered once"
    return found


def visible_text(system: Cluster, name: str) -> list[str]:
    query = "select t.markdown from documents d join visible v on v.document_id = d.id join revision_texts t on t.document_id = d.id and t.ord = v.ord"
    return [row[0] for row in system.select(f"{query} where d.external_id = '{name}'")]


def test_the_producer_imports_nothing_of_ours() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names, "confluent_kafka"}


def test_every_content_in_both_modes_by_any_partitioner_with_and_without_a_key_becomes_searchable(system: Cluster, web: str) -> None:
    uploads = system.folder / "data/blobs/uploads/default"
    uploads.mkdir(parents=True, exist_ok=True)
    (uploads / "levels.txt").write_text("Level 2.40 m at six.\n")
    contents = {
        "base64": ({"base64": base64.b64encode(pdf()).decode()}, "herons"),
        "text": ({"text": "Notice is 45 days."}, "45 days"),
        "storage_key": ({"storage_key": "uploads/default/levels.txt"}, "2.40"),
        "url": ({"url": f"http://{web}/tides.html"}, "noon"),
    }
    ways = [
        {"mode": "binary", "key": "some key", "partitioner": "murmur2_random"},
        {"mode": "structured", "key": "some key"},
        {"mode": "binary"},
        {"mode": "structured", "partitioner": "murmur2_random"},
    ]
    orders = [
        order(f"forms-{name}-{number}", {"external_id": f"forms-{name}-{number}", "content": content, "filename": None}, **way)
        for name, (content, _) in contents.items()
        for number, way in enumerate(ways)
    ]
    answers = by_event(pushed(system, *orders))
    assert answers.keys() == {sent["data"]["external_id"] for sent in orders}
    for name, answer in answers.items():
        data = answer["data"]
        assert (answer["type"], data["external_id"], data["source"], data["tenant"], data["code"]) == (INDEXED, name, SOURCE, "default", None)
        assert data["chunks_count"] >= 1
        assert answer["key"] == data["document_id"] == str(document_id("default", "", name)), "keyed by document"
        assert answer["headers"]["ce_specversion"] == "1.0"
        (text,) = visible_text(system, name)
        assert contents[name.split("-")[1]][1] in text


def test_revisions_that_their_source_numbers_end_with_the_greatest_wherever_and_whenever_they_lie(system: Cluster) -> None:
    names = [f"numbered-{number}" for number in range(8)]
    orders = [
        order(f"{name}/{revision}", document(name, f"Revision {revision} of {name}."), sequence=revision, key=f"{revision}", partitioner=partitioner)
        for revision, partitioner in ((3, "murmur2_random"), (7, "consistent_random"), (1, "murmur2_random"), (5, "consistent_random"))
        for name in names
    ]
    answers = by_event(pushed(system, *orders))
    assert {answers[f"{name}/7"]["type"] for name in names} == {INDEXED}
    assert {answer["type"] for answer in answers.values()} <= {INDEXED, SUPERSEDED}
    assert [visible_text(system, name) for name in names] == [[f"Revision 7 of {name}."] for name in names]
    late = pushed(system, order("numbered-0/6", document("numbered-0", "Too late."), sequence=6))
    assert [(answer["type"], answer["data"]["code"]) for answer in late] == [(SUPERSEDED, "SUPERSEDED")]
    assert late[0]["key"] == str(document_id("default", SOURCE, "numbered-0")), "it belongs to its source"
    (other,) = pushed(system, order("numbered-0/6", document("numbered-0", "Another's."), source="shop/other", sequence=6))
    assert other["data"]["document_id"] == str(document_id("default", "shop/other", "numbered-0"))


def test_revisions_without_numbers_end_with_the_one_appended_last(system: Cluster) -> None:
    orders = [order(f"plain/{revision}", document("plain", f"Revision {revision}."), key=f"{revision}") for revision in range(6)]
    answers = by_event([answer for sent in orders for answer in pushed(system, sent)])
    assert {answer["type"] for answer in answers.values()} == {INDEXED}
    assert visible_text(system, "plain") == ["Revision 5."]
    (repeated,) = pushed(system, order("plain/again", document("plain", "Revision 5.")))
    assert (repeated["type"], repeated["data"]["code"], repeated["data"]["chunks_count"]) == (INDEXED, "UNCHANGED", 1)


def raw_order(event_id: str | None, value: str | None, **headers: str | None) -> Order:
    given = {"ce_specversion": "1.0", "ce_id": event_id, "ce_source": SOURCE, "ce_type": RECEIVED, "content-type": "application/json", **headers}
    return {"headers": {name: text for name, text in given.items() if text is not None}, "value": value}


UNREADABLE = {
    "not-json": ("MALFORMED_EVENT", "JSON", raw_order("not-json", "{")),
    "not-an-object": ("MALFORMED_EVENT", "object", raw_order("not-an-object", "[1]")),
    "no-value": ("MALFORMED_EVENT", "no value", raw_order("no-value", None)),
    "no-type": ("MALFORMED_EVENT", "ce_type", raw_order("no-type", json.dumps(document("no-type")), ce_type=None)),
    "no-version": ("MALFORMED_EVENT", "ce_specversion", raw_order("no-version", json.dumps(document("no-version")), ce_specversion=None)),
    "unknown-type": ("UNKNOWN_TYPE", "document.sent.v1", raw_order("unknown-type", json.dumps(document("unknown-type")), ce_type="document.sent.v1")),
    "unknown-version": ("UNKNOWN_VERSION", "v9", raw_order("unknown-version", json.dumps(document("unknown-version")), ce_type="document.received.v9")),
    "odd-time": ("MALFORMED_EVENT", "yesterday", raw_order("odd-time", json.dumps(document("odd-time")), ce_time="yesterday")),
    "odd-sequence": ("MALFORMED_EVENT", "seven", raw_order("odd-sequence", json.dumps(document("odd-sequence")), ce_sequence="seven")),
    "negative-sequence": ("MALFORMED_EVENT", "-1", raw_order("negative-sequence", json.dumps(document("negative-sequence")), ce_sequence="-1")),
    "text-and-url": (
        "MALFORMED_EVENT",
        "exactly one of",
        raw_order("text-and-url", json.dumps({"external_id": "text-and-url", "content": {"text": "a", "url": "https://example.org/a"}})),
    ),
    "no-content": ("MALFORMED_EVENT", "content", raw_order("no-content", json.dumps({"external_id": "no-content"}))),
    "unknown-field": ("MALFORMED_EVENT", "colour", raw_order("unknown-field", json.dumps(document("unknown-field", colour="red")))),
    "no-folder": ("MALFORMED_EVENT", "is not 1 to 64 characters", raw_order("no-folder", json.dumps(document("no-folder", tenant="a\0b")))),
    "old-specversion": ("MALFORMED_EVENT", "'0.3'", raw_order("old-specversion", json.dumps(document("old-specversion")), ce_specversion="0.3")),
    "no-number": ("MALFORMED_EVENT", "NaN", raw_order("no-number", json.dumps(document("no-number", metadata={"a": float("nan")})))),
    "bad-date": ("MALFORMED_EVENT", "document_date", raw_order("bad-date", json.dumps(document("bad-date", document_date="soon")))),
}
"""Code, a word of the reason, the record."""

REFUSED = {
    "not-base64": ("NOT_BASE64", "base64", {"external_id": "not-base64", "content": {"base64": "%%%"}}),
    "nothing": ("EMPTY_DOCUMENT", "0 bytes", {"external_id": "nothing", "content": {"text": ""}}),
    "too-large": ("INLINE_TOO_LARGE", "700001", {"external_id": "too-large", "content": {"text": "x" * 700_001}}),
    "foreign-key": ("FORBIDDEN_KEY", "uploads/default/", {"external_id": "foreign-key", "content": {"storage_key": "uploads/other/file"}}),
    "climbing-key": ("FORBIDDEN_KEY", "uploads/default/", {"external_id": "climbing-key", "content": {"storage_key": "uploads/default/../../secret"}}),
    "no-blob": ("NO_SUCH_BLOB", "uploads/default/none", {"external_id": "no-blob", "content": {"storage_key": "uploads/default/none"}}),
    "loopback": ("FORBIDDEN_ADDRESS", "127.0.0.1", {"external_id": "loopback", "content": {"url": "http://127.0.0.1:9/x"}}),
    "file-url": ("FORBIDDEN_ADDRESS", "file:", {"external_id": "file-url", "content": {"url": "file:///etc/passwd"}}),
    "not-there": ("FETCH_FAILED", "404", {"external_id": "not-there", "content": {"url": "http://WEB/none.html"}}),
    "locked": ("ENCRYPTED_DOCUMENT", "encrypted", {"external_id": "locked", "content": {"base64": base64.b64encode(encrypted_pdf()).decode()}}),
}
"""What a producer can write and the system cannot take."""


def test_what_cannot_be_taken_is_answered_with_a_readable_reason_and_its_neighbours_pass(system: Cluster, web: str) -> None:
    refused = {name: json.loads(json.dumps(data).replace("WEB", web)) for name, (_, _, data) in REFUSED.items()}
    bad = [record for _, _, record in UNREADABLE.values()] + [order(name, data) for name, data in refused.items()]
    good = [order(f"neighbour-{number}", document(f"neighbour-{number}")) for number in range(len(bad) + 1)]
    between = [sent for pair in zip(good, bad, strict=False) for sent in pair] + good[-1:]
    answers = by_event(pushed(system, *(sent | {"key": "one partition"} for sent in between)))
    assert {answers[sent["attributes"]["id"]]["type"] for sent in good} == {INDEXED}
    for name, (code, word, _) in {**UNREADABLE, **REFUSED}.items():
        answer, data = answers[name], answers[name]["data"]
        assert (answer["type"], data["code"], data["source"]) == (FAILED, code, SOURCE), data
        assert word in data["detail"] and data["remedy"], data
        assert "Traceback" not in data["detail"]
    for name in REFUSED:
        assert answers[name]["key"] == answers[name]["data"]["document_id"] == str(document_id("default", "", name)), (
            "it could be read, so its document is known"
        )
    buried = {str(row[0]) for row in system.select("select event_id from dead_letters")}
    for name in UNREADABLE:
        assert answers[name]["data"]["document_id"] is None
        assert answers[name]["key"] in buried, "keyed by the internal id under which it is buried"


def test_what_is_too_much_for_the_log_stops_nothing(system: Cluster) -> None:
    """Some of it grows on the way: a record that Kafka took can become facts that it does not take."""
    many_blocks = order("many-blocks", document("many-blocks", "a\n\n" * 40_000))
    long_heading = order("long-heading", document("long-heading", "# " + "word " * 20_000 + "\n\n" + "A sentence of the section under it. " * 2_000))
    growing = raw_order("growing", '{"external_id": "growing", "content": {"text": "x"}, "metadata": {"numbers": [' + ",".join(["1e9"] * 200_000) + "]}}")
    deep = {"headers": {"content-type": "application/cloudevents+json", "ce_id": "deep"}, "value": "[" * 200_000}
    deep_data = raw_order("deep-data", '{"external_id": "deep-data", "content": {"text": "x"}, "metadata": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}")
    long_id, long_type = raw_order("i" * 600_000, json.dumps(document("long-id"))), raw_order("long-type", "{}", ce_type="t" * 700_000)
    large = order("large", document("large", "x" * 5_000_000))
    last = order("after-too-much", document("after-too-much"))
    hostile = [many_blocks, long_heading, growing, deep, deep_data, long_id, long_type, large, last]
    answers = pushed(system, *(sent | {"key": "one partition"} for sent in hostile))
    found = {name[:20]: (answer["type"], answer["data"]["code"]) for name, answer in by_event(answers).items()}
    assert found == {
        "many-blocks": (INDEXED, None),
        "long-heading": (INDEXED, None),
        "growing": (FAILED, "EVENT_TOO_LARGE"),
        "deep": (FAILED, "MALFORMED_EVENT"),
        "deep-data": (FAILED, "MALFORMED_EVENT"),
        "i" * 20: (FAILED, "MALFORMED_EVENT"),
        "long-type": (FAILED, "MALFORMED_EVENT"),
        "large": (FAILED, "INLINE_TOO_LARGE"),
        "after-too-much": (INDEXED, None),
    }


def test_an_event_without_an_id_or_a_source_is_answered_by_what_could_be_made_out(system: Cluster) -> None:
    (nameless,) = pushed(system, raw_order(None, json.dumps(document("nameless"))))
    assert (nameless["data"]["event_id"], nameless["data"]["source"], nameless["data"]["external_id"]) == (None, SOURCE, "nameless")
    (homeless,) = pushed(system, raw_order("homeless", json.dumps(document("homeless")), ce_source=None))
    assert (homeless["data"]["event_id"], homeless["data"]["source"]) == ("homeless", None)
    structured = {"headers": {"content-type": "application/cloudevents+json"}, "value": json.dumps({"specversion": "1.0", "id": "half", "source": SOURCE})}
    (half,) = pushed(system, structured)
    assert (half["type"], half["data"]["event_id"], half["data"]["source"]) == (FAILED, "half", SOURCE)


def test_the_same_id_with_another_payload_is_refused_and_with_the_same_one_is_the_same_event(system: Cluster) -> None:
    first, other = document("once", "Said once."), document("once", "Said otherwise.")
    (said,) = pushed(system, order("once", first))
    fence = order("fence", document("fence"))
    respelt = {
        "headers": {"ce_specversion": "1.0", "ce_id": "once", "ce_source": SOURCE, "ce_type": RECEIVED},
        "value": json.dumps(dict(reversed(first.items())), indent=2),
    }
    (only,) = pushed(system, order("once", first), order("once", first, mode="structured"), respelt, fence, answers=1)
    assert only["data"]["event_id"] == "fence", "nothing is said of a repeat"
    (refused,) = pushed(system, order("once", other))
    assert (refused["type"], refused["data"]["code"], refused["data"]["event_id"]) == (FAILED, "DUPLICATE_ID", "once")
    assert refused["data"]["detail"] and refused["data"]["remedy"]
    assert visible_text(system, "once") == ["Said once."]
    (elsewhere,) = pushed(system, order("once", document("elsewhere"), source="shop/other"))
    assert elsewhere["type"] == INDEXED, "ids are unique within a source only"
    assert said["data"]["document_id"] == refused["data"]["document_id"]


def test_a_withdrawn_document_is_gone_and_may_come_back(system: Cluster) -> None:
    assert [answer["type"] for answer in pushed(system, order("back/1", document("back", "First.")))] == [INDEXED]
    (gone,) = pushed(system, order("back/2", {"external_id": "back", "reason": "expired"}, WITHDRAWN, mode="structured"))
    assert (gone["type"], gone["key"], gone["data"]["event_id"]) == (REMOVED, str(document_id("default", "", "back")), "back/2")
    assert visible_text(system, "back") == []
    (back,) = pushed(system, order("back/3", document("back", "First.")))
    assert (back["type"], back["data"]["code"]) == (INDEXED, None)
    assert visible_text(system, "back") == ["First."]
    by_id = {"document_id": back["data"]["document_id"]}
    assert [answer["type"] for answer in pushed(system, order("back/4", by_id, WITHDRAWN))] == [REMOVED]
    assert visible_text(system, "back") == []


def test_a_withdrawal_overtakes_what_is_older_and_is_overtaken_by_what_is_newer(system: Cluster) -> None:
    (gone,) = pushed(system, order("race/2", {"external_id": "race"}, WITHDRAWN, sequence=20))
    assert gone["type"] == REMOVED
    (late,) = pushed(system, order("race/1", document("race", "Old."), sequence=10))
    assert late["type"] == SUPERSEDED
    assert visible_text(system, "race") == []
    (new,) = pushed(system, order("race/3", document("race", "New."), sequence=30))
    assert new["type"] == INDEXED
    assert [answer["type"] for answer in pushed(system, order("race/4", {"external_id": "race"}, WITHDRAWN, sequence=25))] == [SUPERSEDED]
    assert visible_text(system, "race") == ["New."]
