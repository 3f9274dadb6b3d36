from __future__ import annotations

from uuid import UUID

import pytest

from retrieval.question.question_intent import detect_intent
from schemas.planning import Intent
from schemas.questions import QueryRequest
from tests.support.api_client import LOCAL_CALLER
from tests.unit.retrieval_fakes import ScriptedChat
from tests.unit.retrieval_harness import make_harness

RUN_ID = UUID(int=7)


@pytest.mark.parametrize(
    ("question", "intent"),
    [
        ("Why was the ferry out of service?", "why"),
        ("What is the reason for the delay?", "why"),
        ("Por que a ponte está fechada?", "why"),
        ("Porque é que o mercado fecha?", "why"),
        ("¿Por qué cerró el puente?", "why"),
        ("Pourquoi le pont est-il fermé ?", "why"),
        ("Warum ist die Brücke gesperrt?", "why"),
        ("Compare the two budgets.", "comparison"),
        ("What is the difference between the summer and the winter timetable?", "comparison"),
        ("Which is deeper, the Lower Channel or the inner harbour?", "comparison"),
        ("Is the fee higher than last year?", "comparison"),
        ("Qual é a diferença entre as duas taxas?", "comparison"),
        ("How many documents mention the barge?", "counting"),
        ("In how many contracts is Acme named?", "counting"),
        ("Quantos contratos referem a caução?", "counting"),
        ("How many crossings were there in total?", "counting"),
        ("Quantas travessias houve ao todo?", "counting"),
        ("Qual é a taxa aplicada no total da fatura?", "factoid"),
        ("How is Halvik related to the wreck?", "relation"),
        ("What connects the trust with the dredger?", "relation"),
        ("Que ligação há entre o banco e a construtora?", "relation"),
        ("What happens if a crossing is cancelled?", "scenario"),
        ("Se a presidente estiver ausente, quem decide?", "scenario"),
        ("How many days of notice must the operator give?", "factoid"),
        ("For how many days may the crane be idle, more than ten?", "factoid"),
        ("Quem dirige os bombeiros?", "factoid"),
        ("Is smoking allowed?", "factoid"),
        ("MX-200 torque", "lookup"),
        ("the torque of the pump fell when the seal was replaced in May.", "other"),
    ],
)
def test_intent_follows_the_question(question: str, intent: Intent) -> None:
    assert detect_intent(question) == intent


@pytest.mark.parametrize(
    ("question", "language", "note"),
    [
        ("Why does the lease of the warehouse end?", "en", "no cause was inferred"),
        ("Is the bearing seal cheaper than the impeller?", "en", "nothing was compared"),
        ("How many documents name Harbour Estates?", "en", "nothing was counted"),
        ("Por que os trabalhadores têm férias?", "pt", "nenhuma causa foi deduzida"),
        ("When does the lease of the warehouse end?", "en", None),
    ],
)
async def test_quotes_say_what_they_cannot_do(
    question: str, language: str, note: str | None
) -> None:
    request = QueryRequest(query=question, language=language)
    response = await make_harness().make_retriever().query(LOCAL_CALLER, request, RUN_ID)
    assert response.answer is not None and response.trace.plan is not None
    marked = [text for text in response.limitations if text.startswith(("Evidence", "Somente"))]
    assert len(marked) == (note is not None) and (note is None or note in marked[0])


async def test_written_answer_is_more_than_evidence() -> None:
    built = make_harness()
    sentence = {"text": "The lease of the warehouse ends on 31 March 2027.", "citations": [1]}
    built.chat = ScriptedChat(
        {"sufficient": True, "sentences": [sentence], "assumptions": [], "limitations": []}
    )
    request = QueryRequest(query="Why does the lease of the warehouse end?")
    response = await built.make_retriever().query(LOCAL_CALLER, request, RUN_ID)
    assert response.answer and not any("Evidence only" in text for text in response.limitations)
