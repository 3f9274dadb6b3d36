"""Link a question to the entities that it names by an alias, or misspells.

The graph is searched from the entity. A misspelled name, or an alias that no document holds, is
replaced by the entity's name, since no word, vector or sentence would match it.

Aliases are given by people or stated by documents. A stated abbreviation links if it stands for one
entity in all documents; every stated alias, such as "the Licensor", links if it stands for one in
the documents that the question or its filters name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from rapidfuzz.distance import OSA

from retrieval.question.query_plan import QueryPlan, find_written_names
from retrieval.question.stated_filters import DocumentLink, NameSpan, find_name_spans
from retrieval.question.words import extract_content_words
from retrieval.ranking.query_context import QueryContext
from schemas.channels import GraphProfile
from schemas.errors import AnabranchError
from schemas.ports.search import EntityAlias, IndexSnapshot

# Letters that a misspelled word must share with the entity's, and at its end one: "Mario" is not
# taken for "Maria".
SHARED_PREFIX = 2
# Letters that each misspelled word must have.
MIN_LETTERS = 5
# Not the first word of the question, which is always capitalized.
_CAPITALIZED_BEFORE = re.compile(r"\s[^\W\d_a-zà-öø-ÿ][^\s,;:]{0,60}\s$")
_DEFINITE_ARTICLE = re.compile(
    r"\b(?:the|o|d[oa]|n[oa]|ao|à|pel[oa]|der|die|das|dem|den|des)\s$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class AliasLink:
    """Words of the question that name an entity otherwise than the documents do."""

    span: NameSpan
    text: str
    entity: EntityAlias
    is_similar: bool = False


async def link_aliases(
    query: QueryContext, snapshot: IndexSnapshot
) -> tuple[list[AliasLink], tuple[str, ...]]:
    """Return the aliases and the misspelled names in the question, in its order, as far as the
    profile links them, and notes for the trace.

    A failure costs only these links, and is noted.
    """
    graph = GraphProfile.model_validate(query.profile.get_channel("graph"))
    plan, tenant = query.plan, query.caller.tenant
    if not plan.document_names:
        return [], ()
    links: list[AliasLink] = []
    notes: list[str] = []
    async with _limit_lookup(graph.timeout_s, notes):
        if graph.aliases:
            keys = sorted({span.key for span in plan.document_names})
            links += choose_aliases(plan, await snapshot.find_aliases(tenant, keys))
        names = list_correctable_names(plan, links) if graph.fuzzy else {}
        if names:
            similar = await snapshot.find_similar_names(
                tenant,
                sorted(names),
                partial(is_misspelled, edits=graph.fuzzy),
            )
            links += choose_similar_names(plan, names, similar)
    return sorted(links, key=lambda link: link.span.start), tuple(notes)


async def link_stated_aliases(
    query: QueryContext, snapshot: IndexSnapshot, documents: Sequence[DocumentLink]
) -> tuple[list[AliasLink], tuple[str, ...]]:
    """Return the aliases in the question that are stated by the documents that it names, or else
    by those of the request's collections or ids, and notes for the trace.

    Other filters name no document: without one, "the Licensor" may be anyone.
    """
    graph = GraphProfile.model_validate(query.profile.get_channel("graph"))
    filters = query.request.filters
    document_ids = sorted({found.document_id for link in documents for found in link.documents})
    has_scope = document_ids or filters.document_ids or filters.external_ids or filters.collections
    spans = tuple(
        span
        for span in query.plan.document_names
        if not any(span.overlaps(link.span) for link in documents)
    )
    links: list[AliasLink] = []
    notes: list[str] = []
    if graph.aliases and has_scope and spans:
        async with _limit_lookup(graph.timeout_s, notes):
            found = await snapshot.find_stated_aliases(
                query.caller.tenant,
                sorted({span.key for span in spans}),
                documents=document_ids,
                filters=filters,
            )
            links = choose_aliases(replace(query.plan, document_names=spans), found)
    return links, tuple(notes)


@asynccontextmanager
async def _limit_lookup(timeout_s: float, notes: list[str]) -> AsyncIterator[None]:
    """Note a failure, or that there was no answer in time."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except AnabranchError as error:
        notes.append(f"names not compared with those of entities: {error.detail}")
    except TimeoutError:
        notes.append(f"names not compared with those of entities: no answer in {timeout_s:g} s")


def list_correctable_names(plan: QueryPlan, links: Sequence[AliasLink]) -> dict[str, NameSpan]:
    """Return the spans that are written as names, by normalized name, without digits and short
    ones, and without those that hold an alias.
    """
    return {
        span.key: span
        for span in plan.document_names
        if plan.question[span.start : span.end] in plan.written_names
        and not any(character.isdigit() for character in span.key)
        and any(len(word) >= MIN_LETTERS for word in span.key.split())
        and not any(span.overlaps(link.span) for link in links)
    }


def is_misspelled(name: str, key: str, *, edits: int) -> bool:
    """Tell whether `name` may be `key` with up to `edits` letters wrong (optimal string alignment).

    Words that differ must be long, and begin and end alike.
    """
    words, key_words = name.split(), key.split()
    if len(words) != len(key_words) or any(character.isdigit() for character in key):
        return False
    differing = [pair for pair in zip(words, key_words, strict=True) if pair[0] != pair[1]]
    return OSA.distance(name, key, score_cutoff=edits) <= edits and all(
        min(len(word), len(other)) >= MIN_LETTERS
        and word[:SHARED_PREFIX] == other[:SHARED_PREFIX]
        and word[-1] == other[-1]
        for word, other in differing
    )


def choose_similar_names(
    plan: QueryPlan, names: Mapping[str, NameSpan], found: Iterable[EntityAlias]
) -> list[AliasLink]:
    """Return a link for each name that is similar to one name of entities, longest first.

    A name that documents hold is no misspelling, and one that is similar to several is unclear.
    """
    by_name: dict[str, dict[str, EntityAlias]] = {}
    for entity in found:
        by_name.setdefault(entity.key, {}).setdefault(entity.entity_key, entity)
    links: list[AliasLink] = []
    for name, span in names.items():
        entities = list(by_name.get(name, {}).values())
        if (
            len(entities) == 1
            and not entities[0].is_written
            and entities[0].entity_key not in plan.names
            and not any(span.overlaps(link.span) for link in links)
        ):
            text = plan.question[span.start : span.end]
            links.append(AliasLink(span, text, entities[0], is_similar=True))
    return links


def choose_aliases(plan: QueryPlan, found: Iterable[EntityAlias]) -> list[AliasLink]:
    """Return links without names inside longer ones.

    An alias of several entities is left out, as is one of an entity that the question names too.
    """
    by_key: dict[str, list[EntityAlias]] = {}
    for entity in found:
        by_key.setdefault(entity.key, []).append(entity)
    taken: list[NameSpan] = []
    links: list[AliasLink] = []
    for span in plan.document_names:
        entities = by_key.get(span.key)
        if entities is None or any(span.overlaps(other) for other in taken):
            continue
        taken.append(span)
        # Documents may disagree about the type of a name.
        is_clear = len({entity.entity_key for entity in entities}) == 1
        is_meant = any(_is_meant(plan.question, span, entity) for entity in entities)
        if is_clear and is_meant and entities[0].entity_key not in plan.names:
            links.append(AliasLink(span, plan.question[span.start : span.end], entities[0]))
    return links


def _is_meant(question: str, span: NameSpan, alias: EntityAlias) -> bool:
    """Tell whether the words are written as the alias: "which act" is not the ACT, "which company"
    not the Company, and "NOC Kazakh" no NOC.
    """
    match alias.kind:
        case "abbreviation":
            return question[span.start : span.end] == alias.alias and not (
                _CAPITALIZED_BEFORE.search(question, 0, span.start)
                or question[span.end + 1 : span.end + 2].isupper()
            )
        case "defined_term":
            return span.is_capitalized or bool(_DEFINITE_ARTICLE.search(question, 0, span.start))
        case "added":
            return True


def apply_aliases(plan: QueryPlan, links: Sequence[AliasLink]) -> QueryPlan:
    """Return the plan with the entities among its names, and with their names in the place of
    aliases that no document holds.
    """
    replaced = {link.span.key: link.entity.name for link in links if not link.entity.is_written}
    question = _replace_names(plan.question, replaced)
    return replace(
        plan,
        question=question,
        keywords=tuple(dict.fromkeys(extract_content_words(question, plan.language))),
        written_names=tuple(dict.fromkeys(find_written_names(question))),
        names={**plan.names, **{link.entity.entity_key: 1.0 for link in links}},
        document_names=tuple(find_name_spans(question)),
        rewritten=_replace_names(plan.rewritten, replaced),
        search_words=(*plan.search_words, *replaced.values()) if plan.search_words else (),
    )


def _replace_names(text: str, names: Mapping[str, str]) -> str:
    taken: list[NameSpan] = []
    for span in find_name_spans(text):
        if span.key in names and not any(span.overlaps(other) for other in taken):
            taken.append(span)
    for span in sorted(taken, key=lambda span: -span.start):
        text = f"{text[: span.start]}{names[span.key]}{text[span.end :]}"
    return text


def format_alias_assumption(link: AliasLink) -> str:
    setting, reading = (
        ('"fuzzy": 0', "is read as the similar name")
        if link.is_similar
        else ('"aliases": false', "is taken as an alias of")
    )
    return (
        f"“{link.text}” {reading} {link.entity.name} ({link.entity.type}). Set overrides to "
        f'{{"graph": {{{setting}}}}} to search without it.'
    )
