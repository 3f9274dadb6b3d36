from __future__ import annotations

from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli.errors import translate_phrases
from retrieval.question.stated_filters import (
    DocumentLink,
    NameSpan,
    StatedFilters,
    format_assumption,
    format_filter_assumption,
)
from retrieval.ranking.entity_aliases import AliasLink, format_alias_assumption
from schemas.ports.search import EntityAlias
from schemas.questions import Filters
from tests.fakes.failing_server import ServeAnswers, serve_answers

__all__ = ["serve_answers"]

RESULT: dict[str, Any] = {
    "rank": 1,
    "score": 3.21,
    "document_id": "d",
    "external_id": None,
    "title": "Lease",
    "source_uri": None,
    "section": "Lease > Rent",
    "pages": [2],
    "snippet": "The monthly rent is SEK 287,500.",
    "channels": {"lexical": {"rank": 1, "score": 12.345}, "semantic": {"rank": 2, "score": 0.8123}},
    "explanation": {
        "score": 3.21,
        "rerank_score": 0.7,
        "children_found": 2,
        "lexical_z": 1.1,
        "semantic_z": 0.9,
        "rerank_z": 0.6,
        "fused": 2.0,
        "kind": None,
    },
}
TRACE: dict[str, Any] = {
    "plan": {
        "intent": "factoid",
        "decided_by": "rules",
        "keywords": ["monthly", "rent"],
        "semantic_query": "What is the monthly rent?",
    },
    "route": {
        "mode": "hybrid",
        "escalated_from": "vector",
        "decided_by": "rules",
        "reason": "no name and no relation in the question",
    },
    "channels": {
        "lexical": {"k": 100, "returned": 7, "best": 12.345, "ms": 3.0, "served_by": None},
        "graph": {"k": 50, "returned": 2, "best": 1.16, "ms": 3.0, "served_by": "bolt"},
    },
    "channels_failed": {"semantic": "TIMED_OUT"},
    "notes": [
        "not reranked: http://models answered 500",
        "Rent means the rent without heating.",
        "“Lease” names the document. Set prefer_named to false to search all documents alike.",
    ],
    "usage": [
        {
            "task": "embed",
            "model": "e5",
            "local": True,
            "calls": 1,
            "failed": 0,
            "input_tokens": 0,
            "output_tokens": 0,
            "estimated": False,
            "cost": 0.0,
        },
        {
            "task": "answer",
            "model": "gpt\x1b[2J",
            "local": False,
            "calls": 2,
            "failed": 1,
            "input_tokens": 5210,
            "output_tokens": 90,
            "estimated": True,
            "cost": 0.0123456,
        },
    ],
    "stopped": [{"task": "judge", "reason": "budget.judge_calls of the profile allows 0 calls"}],
    "unpriced": [],
    "cost": 0.0123456,
    "currency": "EUR",
    "max_rerank_score": 0.71,
    "rerank_background": 0.81,
    "threshold": 0.55,
}
ANSWER: dict[str, Any] = {
    "answer": "The monthly rent is SEK 287,500. [1]",
    "refused": False,
    "citations": [{**RESULT, "n": 1, "quote": "The monthly rent is SEK 287,500."}],
    "contexts": [RESULT],
    "path": [
        {
            "title": "Lease",
            "document_id": "d",
            "quote": "The tenant is \x1b[2JAnna Berg.",
            "target": {"title": None, "external_id": "berg", "document_id": "e"},
        }
    ],
    "confidence": {
        "level": "medium",
        "reasons": ["best rerank score 0.710 against 0.550", "1 distinct source"],
    },
    "assumptions": ["Rent means the rent without heating."],
    "limitations": [
        "The chat model gave no usable answer (no JSON); the answer is quoted instead."
    ],
    "relation_path": [
        {
            "subject": "Anna Berg",
            "predicate": "rents\x1b[2J",
            "object": "Lease",
            "inverse": False,
            "citations": [1],
        }
    ],
    "graph_facts": [
        {**RESULT, "kind": "claim", "subject": "Lease", "predicate": "price", "object": "950 EUR"}
    ],
    "trace": TRACE,
}


def test_query_prints_confidence_assumptions_and_limitations(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers({"/v1/query": ANSWER}, 1)
    assert main(["query", "What is the rent?"]) == 0
    stdout = capsys.readouterr().out
    assert "confidence: medium (best rerank score 0.710 against 0.550; 1 distinct source)" in stdout
    assert "assumption: Rent means the rent without heating." in stdout
    # Control characters of the document are escaped.
    assert "path: Lease: “The tenant is \\x1b[2JAnna Berg.” → berg" in stdout
    assert "relation: Anna Berg -rents\\x1b[2J-> Lease [1]" in stdout
    assert (
        "limitation: The chat model gave no usable answer (no JSON); the answer is quoted" in stdout
    )
    assert "explanation" not in stdout


def test_refusal_prints_limitations_without_confidence(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_answers(
        {
            "/v1/query": {
                **ANSWER,
                "refused": True,
                "code": "NO_SUCH_COLLECTION",
                "message": "There is no collection 'typo'.",
                "limitations": [*ANSWER["limitations"], "There is no collection 'typo'."],
                "citations": [],
            }
        },
        1,
    )
    assert main(["query", "What is the rent?"]) == 4
    stdout, stderr = capsys.readouterr()
    assert stdout.count("There is no collection 'typo'.") == 1
    assert "anabranch collections list" in stderr
    assert (
        "There is no collection 'typo'." in stdout
        and "limitation: " in stdout
        and "confidence" not in stdout
    )


@pytest.mark.parametrize("command", ["query", "search"])
def test_explanation_fits_80_columns(
    serve_answers: ServeAnswers,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    serve_answers({"/v1/query": ANSWER, "/v1/search": {"results": [RESULT], "trace": TRACE}}, 1)
    assert main([command, "What is the rent?", "--explain"]) == 0
    explained = capsys.readouterr().out.partition("explanation\n")[2]
    flat = " ".join(explained.split())
    for phrase in (
        "plan: factoid question, by rules; keywords: monthly, rent; embedded: What is the monthly",
        "route: hybrid after vector, decided by rules: no name and no relation in the question",
        "lexical: 7 of at most 100 candidates, best 12.35",
        "graph: 2 of at most 50 candidates, best 1.16, served by bolt",
        "semantic: failed: TIMED_OUT",
        "note: not reranked: http://models answered 500",
        "note: “Lease” names the document. Use --no-prefer-named to search all documents alike.",
        "refusal: best rerank score 0.71, threshold 0.55, both counted from 0.81, which",
        "embed by e5: 1 call, local",
        "answer by gpt\\x1b[2J: 2 calls, 1 failed, 5,210 tokens in, 90 out (bounds)",
        "judge not called: budget.judge_calls of the profile allows 0 calls",
        "cost: 0.0123456 EUR",
        "1. Lease · Rent · p. 2",
        "lexical rank 1, score 12.35; semantic rank 2, score 0.8123",
        "lexical_z 1.1, semantic_z 0.9, rerank_z 0.6, fused 2",
    ):
        assert phrase in flat
    # The query has printed it as an assumption.
    assert flat.count("Rent means the rent without heating.") == (command == "search")
    assert ("claim: Lease -price-> 950 EUR, stated by Lease" in flat) == (command == "query")
    assert max(map(len, explained.splitlines())) <= 80


def test_unquoted_query_words_are_joined(
    serve_answers: ServeAnswers, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = serve_answers({"/v1/query": ANSWER}, 2)
    assert main(["query", "annual", "leave", "--collection", "hr"]) == 0
    assert b'"annual leave"' in requests[0][1] and b'"infer_filters":true' in requests[0][1]
    assert b'"prefer_named":true' in requests[0][1]
    assert main(["query", "leave #hr", "--no-infer-filters", "--no-prefer-named"]) == 0
    assert b'"infer_filters":false' in requests[1][1]
    assert b'"prefer_named":false' in requests[1][1]
    assert main(["query"]) == 2
    assert "[NO_QUESTION]" in capsys.readouterr().err


SPAN = NameSpan(0, 3, "hal", is_capitalized=True)
ALIAS = EntityAlias("hal", "HAL", "halvik", "ORG", "Halvik", False)


@pytest.mark.parametrize(
    ("assumption", "option"),
    [
        (format_assumption(DocumentLink(SPAN, (), is_address=False), "HAL"), "--no-prefer-named"),
        (
            format_filter_assumption(StatedFilters(Filters(tags=["hr"]), ("#hr",), "leave")),
            "--no-infer-filters",
        ),
        (format_alias_assumption(AliasLink(SPAN, "HAL", ALIAS)), "--override graph.aliases=false"),
        (
            format_alias_assumption(AliasLink(SPAN, "HAL", ALIAS, is_similar=True)),
            "--override graph.fuzzy=0",
        ),
    ],
)
def test_assumption_names_the_option_that_removes_it(assumption: str, option: str) -> None:
    translated = translate_phrases(assumption)
    assert f"Use {option} to search" in translated and "Set " not in translated
