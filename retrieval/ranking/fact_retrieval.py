"""Choose the approved facts that a question asks about.

A fact suits if it holds most of the question's topical words, and all of its codes, numbers and
names: the contact for plant 4 does not answer a question about plant 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from retrieval.question.question_terms import find_question_terms, index_text_terms
from retrieval.question.words import extract_word_keys, split_words
from retrieval.ranking.query_context import QueryContext
from schemas.facts import Fact, FactCitation, FactsProfile, decay_certainty
from schemas.ports.search import IndexSnapshot
from schemas.questions import Filters, QueryRequest

# Facts that are scored; the database returns those that hold most words of the question.
MAX_SCORED = 200
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class _ScoredFact:
    fact: Fact
    certainty: float
    score: float


async def retrieve_facts(
    query: QueryContext, snapshot: IndexSnapshot, now: datetime
) -> tuple[FactCitation, ...]:
    """Return the facts to answer from, best first.

    A question that is restricted to some documents has none: a fact belongs to no document.
    """
    profile, request = query.profile.facts, query.request
    question = query.question
    keys = extract_word_keys(question)
    if (
        not profile.enabled
        or not isinstance(request, QueryRequest)
        or request.filters != Filters()
        or not keys
    ):
        return ()
    facts = await snapshot.search_facts(query.caller.tenant, sorted(keys), now, MAX_SCORED)
    return tuple(
        FactCitation(
            n=n,
            fact_id=scored.fact.fact_id,
            statement=scored.fact.statement,
            source=scored.fact.source,
            stated_by=scored.fact.stated_by,
            stated_at=scored.fact.stated_at,
            approved_by=scored.fact.decided_by,
            certainty=scored.certainty,
        )
        for n, scored in enumerate(
            _rank_facts(facts, question, query.plan.language, profile, now), start=1
        )
    )


def _rank_facts(
    facts: Sequence[Fact],
    question: str,
    language: str | None,
    profile: FactsProfile,
    now: datetime,
) -> list[_ScoredFact]:
    keys = extract_word_keys(question)
    terms = find_question_terms(question, language)
    # A number of one digit is no code, yet it tells plant 3 from plant 4.
    codes = {*terms.codes, *(word for word in split_words(question) if word.isdigit())}
    ranked = []
    for fact in facts:
        held = index_text_terms([fact.statement])
        if not all(map(held.holds_code, codes)) or not all(map(held.holds_name, terms.names)):
            continue
        coverage = len(keys & extract_word_keys(fact.statement)) / len(keys)
        age_days = (now - fact.stated_at).total_seconds() / _DAY_S
        half_life_days = fact.half_life_days or profile.half_life_days
        certainty = decay_certainty(fact.certainty, age_days, half_life_days)
        if coverage >= profile.min_coverage and certainty >= profile.min_certainty:
            ranked.append(_ScoredFact(fact, certainty, coverage * certainty))
    # The database breaks ties: more words, then the newer statement.
    return sorted(ranked, key=lambda scored: -scored.score)[: profile.k]
