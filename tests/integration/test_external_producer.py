"""A foreign producer pushes documents in every form, order and error that Kafka permits."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import pytest

from schemas.ids import make_document_id
from streams.kafka.client import KafkaClientSettings
from tests.fakes.web_server import fake_web
from tests.support.broken_files import make_encrypted_pdf, make_pdf
from tests.support.cluster import WorkerCluster, run_cluster
from tests.support.eventually import eventually_blocking
from tests.support.postgres_fixture import clone_database

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.kafka

PROGRAM = ROOT / "tests" / "support" / "foreign_producer.py"
RECEIVED, WITHDRAWN = "document.received.v1", "document.withdrawn.v1"
INDEXED, FAILED, SUPERSEDED, REMOVED = (
    "document.indexed.v1",
    "document.failed.v1",
    "document.superseded.v1",
    "document.removed.v1",
)
SOURCE = "shop/contracts"
ProducerOrder = dict[str, Any]
ProducerAnswer = dict[str, Any]


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with fake_web() as address:
        yield address.removeprefix("http://")


@pytest.fixture(scope="module")
def system(
    kafka_bootstrap: str,
    postgres_server: Any,
    template_database: str,
    web: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WorkerCluster]:
    """Run one worker with all stages and the real parser for all tests of this file."""
    settings = KafkaClientSettings(kafka_bootstrap, topic_prefix=f"any-{uuid4().hex[:12]}.")
    with (
        contextmanager(clone_database)(postgres_server.dsn, template_database) as dsn,
        run_cluster(
            settings, dsn, tmp_path_factory.mktemp("any"), ANABRANCH_INGEST__URL_ALLOW=web
        ) as found,
    ):
        worker = found.start_worker(real_parser=True)
        eventually_blocking(lambda: worker.is_ready, what="the worker")
        yield found


def push_and_collect_answers(
    system: WorkerCluster, *orders: ProducerOrder, answers: int | None = None
) -> list[ProducerAnswer]:
    """Push orders with the foreign program; return its outcomes, one per order by default."""
    command = [
        sys.executable,
        "-I",
        str(PROGRAM),
        system.settings.bootstrap_servers,
        system.settings.topic_prefix,
    ]
    request = json.dumps({"events": orders, "answers": len(orders) if answers is None else answers})
    done = subprocess.run(
        command, input=request, capture_output=True, text=True, cwd="/", check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[ProducerAnswer] = json.loads(done.stdout)
    for answer in found:
        jsonschema.validate(answer["data"], load_event_schema(answer["type"]))
    return found


def push_and_get_answer(system: WorkerCluster, order: ProducerOrder) -> ProducerAnswer:
    (answer,) = push_and_collect_answers(system, order)
    return answer


def load_event_schema(event_type: str) -> Any:
    return json.loads(
        (ROOT / f"docs/reference/events/{event_type}.json").read_text(encoding="utf-8")
    )


def make_order(
    event_id: str, data: Any, kind: str = RECEIVED, *, source: str = SOURCE, **how: Any
) -> ProducerOrder:
    """Make an event and validate it as its producer would."""
    sequence = how.pop("sequence", None)
    jsonschema.validate(data, load_event_schema(kind))
    attributes = {"id": event_id, "source": source, "type": kind} | (
        {} if sequence is None else {"sequence": str(sequence)}
    )
    return {"attributes": attributes, "data": data, **how}


def make_document(name: str, text: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "external_id": name,
        "content": {"text": text or f"# {name}\n\nThe weir was built in 1911."},
        **more,
    }


def index_by_event(answers: list[ProducerAnswer]) -> dict[str, ProducerAnswer]:
    found = {answer["data"]["event_id"]: answer for answer in answers}
    assert len(found) == len(answers), "each event is answered once"
    return found


def fetch_visible_text(system: WorkerCluster, name: str) -> list[str]:
    query = (
        "select t.markdown from documents d join visible v on v.document_id = d.id "
        "join revision_texts t on t.document_id = d.id and t.ord = v.ord"
    )
    return [row[0] for row in system.select(f"{query} where d.external_id = '{name}'")]


def test_producer_imports_no_project_code() -> None:
    tree = ast.parse(PROGRAM.read_text(encoding="utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= {
        *sys.stdlib_module_names,
        "confluent_kafka",
    }


def test_content_is_searchable_in_any_mode_partitioner_and_key(
    system: WorkerCluster, web: str
) -> None:
    uploads = system.folder / "data/blobs/uploads/default"
    uploads.mkdir(parents=True, exist_ok=True)
    (uploads / "levels.txt").write_text("Level 2.40 m at six.\n")
    contents = {
        "base64": ({"base64": base64.b64encode(make_pdf()).decode()}, "herons"),
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
        make_order(
            f"forms-{name}-{number}",
            {"external_id": f"forms-{name}-{number}", "content": content, "filename": None},
            **way,
        )
        for name, (content, _) in contents.items()
        for number, way in enumerate(ways)
        if name == "text" or way is ways[0]
    ]
    answers = index_by_event(push_and_collect_answers(system, *orders))
    assert answers.keys() == {sent["data"]["external_id"] for sent in orders}
    for name, answer in answers.items():
        data = answer["data"]
        assert (
            answer["type"],
            data["external_id"],
            data["source"],
            data["tenant"],
            data["code"],
        ) == (INDEXED, name, SOURCE, "default", None)
        assert data["chunks_count"] >= 1
        assert answer["key"] == data["document_id"] == str(make_document_id("default", "", name)), (
            "keyed by document"
        )
        assert answer["headers"]["ce_specversion"] == "1.0"
        (text,) = fetch_visible_text(system, name)
        assert contents[name.split("-")[1]][1] in text


def test_highest_source_sequence_wins_in_any_order(system: WorkerCluster) -> None:
    names = [f"numbered-{number}" for number in range(3)]
    orders = [
        make_order(
            f"{name}/{revision}",
            make_document(name, f"Revision {revision} of {name}."),
            sequence=revision,
            key=f"{revision}",
            partitioner=partitioner,
        )
        for revision, partitioner in (
            (3, "murmur2_random"),
            (7, "consistent_random"),
            (1, "murmur2_random"),
            (5, "consistent_random"),
        )
        for name in names
    ]
    answers = index_by_event(push_and_collect_answers(system, *orders))
    assert {answers[f"{name}/7"]["type"] for name in names} == {INDEXED}
    assert {answer["type"] for answer in answers.values()} <= {INDEXED, SUPERSEDED}
    assert [fetch_visible_text(system, name) for name in names] == [
        [f"Revision 7 of {name}."] for name in names
    ]
    late = push_and_collect_answers(
        system, make_order("numbered-0/6", make_document("numbered-0", "Too late."), sequence=6)
    )
    assert [(answer["type"], answer["data"]["code"]) for answer in late] == [
        (SUPERSEDED, "SUPERSEDED")
    ]
    assert late[0]["key"] == str(make_document_id("default", SOURCE, "numbered-0")), (
        "it belongs to its source"
    )
    (other,) = push_and_collect_answers(
        system,
        make_order(
            "numbered-0/6",
            make_document("numbered-0", "Another's."),
            source="shop/other",
            sequence=6,
        ),
    )
    assert other["data"]["document_id"] == str(
        make_document_id("default", "shop/other", "numbered-0")
    )


def test_unsequenced_revisions_end_with_last_appended(system: WorkerCluster) -> None:
    orders = [
        make_order(
            f"plain/{revision}", make_document("plain", f"Revision {revision}."), key=f"{revision}"
        )
        for revision in range(3)
    ]
    answers = index_by_event(
        [answer for sent in orders for answer in push_and_collect_answers(system, sent)]
    )
    assert {answer["type"] for answer in answers.values()} == {INDEXED}
    assert fetch_visible_text(system, "plain") == ["Revision 2."]
    (repeated,) = push_and_collect_answers(
        system, make_order("plain/again", make_document("plain", "Revision 2."))
    )
    assert (repeated["type"], repeated["data"]["code"], repeated["data"]["chunks_count"]) == (
        INDEXED,
        "UNCHANGED",
        1,
    )


def make_raw_order(event_id: str | None, value: str | None, **headers: str | None) -> ProducerOrder:
    given = {
        "ce_specversion": "1.0",
        "ce_id": event_id,
        "ce_source": SOURCE,
        "ce_type": RECEIVED,
        "content-type": "application/json",
        **headers,
    }
    return {
        "headers": {name: text for name, text in given.items() if text is not None},
        "value": value,
    }


UNREADABLE = {
    "not-json": ("MALFORMED_EVENT", "JSON", make_raw_order("not-json", "{")),
    "no-value": ("MALFORMED_EVENT", "no value", make_raw_order("no-value", None)),
    "unknown-type": (
        "UNKNOWN_TYPE",
        "document.sent.v1",
        make_raw_order(
            "unknown-type", json.dumps(make_document("unknown-type")), ce_type="document.sent.v1"
        ),
    ),
}
"""Code, a word of the reason, the record. `unit/test_codec.py` has all reasons."""

REJECTED = {
    "nothing": ("EMPTY_DOCUMENT", "0 bytes", {"text": ""}),
    "climbing-key": (
        "FORBIDDEN_KEY",
        "uploads/default/",
        {"storage_key": "uploads/default/../../secret"},
    ),
    "loopback": ("FORBIDDEN_ADDRESS", "127.0.0.1", {"url": "http://127.0.0.1:9/x"}),
    "not-there": ("FETCH_FAILED", "404", {"url": "http://WEB/none.html"}),
    "locked": (
        "ENCRYPTED_DOCUMENT",
        "encrypted",
        {"base64": base64.b64encode(make_encrypted_pdf()).decode()},
    ),
}
"""Content that a producer can send and the system must reject. `unit/test_ingress.py`, and the
contracts of parser and fetcher have all codes.
"""


def test_invalid_events_are_rejected_with_reason_and_others_pass(
    system: WorkerCluster, web: str
) -> None:
    bad = [record for _, _, record in UNREADABLE.values()] + [
        make_order(name, json.loads(json.dumps(data).replace("WEB", web)))
        for name, (_, _, content) in REJECTED.items()
        for data in [{"external_id": name, "content": content}]
    ]
    good = [
        make_order(f"neighbour-{number}", make_document(f"neighbour-{number}"))
        for number in range(len(bad) // 4 + 1)
    ]
    between = [
        sent
        for number, neighbour in enumerate(good)
        for sent in (neighbour, *bad[4 * number : 4 * number + 4])
    ]
    answers = index_by_event(
        push_and_collect_answers(system, *(sent | {"key": "one partition"} for sent in between))
    )
    assert {answers[sent["attributes"]["id"]]["type"] for sent in good} == {INDEXED}
    for name, (code, word, _) in {**UNREADABLE, **REJECTED}.items():
        answer, data = answers[name], answers[name]["data"]
        assert (answer["type"], data["code"], data["source"]) == (FAILED, code, SOURCE), data
        assert word in data["detail"] and data["remedy"], data
        assert "Traceback" not in data["detail"]
    for name in REJECTED:
        assert (
            answers[name]["key"]
            == answers[name]["data"]["document_id"]
            == str(make_document_id("default", "", name))
        ), "it could be read, so its document is known"
    dead_lettered = {str(row[0]) for row in system.select("select event_id from dead_letters")}
    for name in UNREADABLE:
        assert answers[name]["data"]["document_id"] is None
        assert answers[name]["key"] in dead_lettered, "keyed by the internal id of the dead letter"


def test_oversized_events_do_not_stop_the_pipeline(system: WorkerCluster) -> None:
    """A record within Kafka's size limit can produce events that exceed it."""
    many_blocks = make_order("many-blocks", make_document("many-blocks", "a\n\n" * 40_000))
    long_heading = make_order(
        "long-heading",
        make_document(
            "long-heading",
            "# " + "word " * 20_000 + "\n\n" + "A sentence of the section under it. " * 2_000,
        ),
    )
    growing = make_raw_order(
        "growing",
        '{"external_id": "growing", "content": {"text": "x"}, "metadata": {"numbers": ['
        + ",".join(["1e9"] * 200_000)
        + "]}}",
    )
    deep = {
        "headers": {"content-type": "application/cloudevents+json", "ce_id": "deep"},
        "value": "[" * 200_000,
    }
    deep_data = make_raw_order(
        "deep-data",
        '{"external_id": "deep-data", "content": {"text": "x"}, "metadata": {"a": '
        + "[" * 100_000
        + "]" * 100_000
        + "}}",
    )
    long_id, long_type = (
        make_raw_order("i" * 600_000, json.dumps(make_document("long-id"))),
        make_raw_order("long-type", "{}", ce_type="t" * 700_000),
    )
    large = make_order("large", make_document("large", "x" * 5_000_000))
    last = make_order("after-too-much", make_document("after-too-much"))
    hostile = [many_blocks, long_heading, growing, deep, deep_data, long_id, long_type, large, last]
    answers = push_and_collect_answers(
        system, *(sent | {"key": "one partition"} for sent in hostile)
    )
    found = {
        name[:20]: (answer["type"], answer["data"]["code"])
        for name, answer in index_by_event(answers).items()
    }
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


@pytest.mark.parametrize(
    ("order", "event_id", "source"),
    [
        (make_raw_order(None, json.dumps(make_document("nameless"))), None, SOURCE),
        (
            make_raw_order("homeless", json.dumps(make_document("homeless")), ce_source=None),
            "homeless",
            None,
        ),
        (
            {
                "headers": {"content-type": "application/cloudevents+json"},
                "value": json.dumps({"specversion": "1.0", "id": "half", "source": SOURCE}),
            },
            "half",
            SOURCE,
        ),
    ],
    ids=["no id", "no source", "no type"],
)
def test_event_without_id_or_source_is_answered(
    system: WorkerCluster, order: ProducerOrder, event_id: str | None, source: str | None
) -> None:
    answer = push_and_get_answer(system, order)
    assert (answer["type"], answer["data"]["event_id"], answer["data"]["source"]) == (
        FAILED,
        event_id,
        source,
    )
    if event_id is None:
        assert answer["data"]["external_id"] == "nameless"


def test_reused_event_id_with_other_payload_is_rejected(system: WorkerCluster) -> None:
    first, other = make_document("once", "Said once."), make_document("once", "Said otherwise.")
    (indexed,) = push_and_collect_answers(system, make_order("once", first))
    fence = make_order("fence", make_document("fence"))
    respelt = {
        "headers": {
            "ce_specversion": "1.0",
            "ce_id": "once",
            "ce_source": SOURCE,
            "ce_type": RECEIVED,
        },
        "value": json.dumps(dict(reversed(first.items())), indent=2),
    }
    (only,) = push_and_collect_answers(
        system,
        make_order("once", first),
        make_order("once", first, mode="structured"),
        respelt,
        fence,
        answers=1,
    )
    assert only["data"]["event_id"] == "fence", "nothing is said of a repeat"
    (refused,) = push_and_collect_answers(system, make_order("once", other))
    assert (refused["type"], refused["data"]["code"], refused["data"]["event_id"]) == (
        FAILED,
        "DUPLICATE_ID",
        "once",
    )
    assert refused["data"]["detail"] and refused["data"]["remedy"]
    assert fetch_visible_text(system, "once") == ["Said once."]
    (elsewhere,) = push_and_collect_answers(
        system, make_order("once", make_document("elsewhere"), source="shop/other")
    )
    assert elsewhere["type"] == INDEXED, "ids are unique within a source only"
    assert indexed["data"]["document_id"] == refused["data"]["document_id"]


def test_withdrawn_document_can_be_ingested_again(system: WorkerCluster) -> None:
    first = make_order("back/1", make_document("back", "First."))
    assert push_and_get_answer(system, first)["type"] == INDEXED
    withdrawal = {"external_id": "back", "reason": "expired"}
    gone = push_and_get_answer(
        system, make_order("back/2", withdrawal, WITHDRAWN, mode="structured")
    )
    document_id = str(make_document_id("default", "", "back"))
    assert (gone["type"], gone["key"], gone["data"]["event_id"]) == (REMOVED, document_id, "back/2")
    assert fetch_visible_text(system, "back") == []
    back = push_and_get_answer(system, make_order("back/3", make_document("back", "First.")))
    assert (back["type"], back["data"]["code"]) == (INDEXED, None)
    assert fetch_visible_text(system, "back") == ["First."]
    by_id = {"document_id": back["data"]["document_id"]}
    assert push_and_get_answer(system, make_order("back/4", by_id, WITHDRAWN))["type"] == REMOVED
    assert fetch_visible_text(system, "back") == []


def test_withdrawal_is_ordered_by_source_sequence(system: WorkerCluster) -> None:
    def push(event_id: str, sequence: int, text: str | None) -> tuple[str, list[str]]:
        data, kind = ({"external_id": "race"}, WITHDRAWN)
        if text is not None:
            data, kind = make_document("race", text), RECEIVED
        answer = push_and_get_answer(system, make_order(event_id, data, kind, sequence=sequence))
        return answer["type"], fetch_visible_text(system, "race")

    assert push("race/2", 20, None) == (REMOVED, [])
    assert push("race/1", 10, "Old.") == (SUPERSEDED, [])
    assert push("race/3", 30, "New.") == (INDEXED, ["New."])
    assert push("race/4", 25, None) == (SUPERSEDED, ["New."])
