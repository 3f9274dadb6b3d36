"""Link a question to the entities that it names by an alias that people gave them.

The graph is searched from the entity. An alias that no document holds is replaced by the entity's
name, since no word, vector or sentence would match it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from retrieval.document_links import NameSpan, find_name_spans
from retrieval.query_context import QueryContext
from retrieval.query_plan import QueryPlan, find_written_names
from retrieval.words import extract_content_words
from schemas.channels import GraphProfile
from schemas.errors import AnabranchError
from schemas.ports.search import EntityAlias, IndexSnapshot


@dataclass(frozen=True, slots=True)
class AliasLink:
    """Words of the question that name an entity otherwise than the documents do."""

    span: NameSpan
    text: str
    entity: EntityAlias


async def link_aliases(query: QueryContext, snapshot: IndexSnapshot) -> list[AliasLink]:
    """Return the aliases in the question, unless the profile ignores them.

    A failure costs only the aliases: the channels report it.
    """
    graph = GraphProfile.model_validate(query.profile.get_channel("graph"))
    plan = query.plan
    if not graph.aliases or not plan.document_names:
        return []
    keys = sorted({span.key for span in plan.document_names})
    try:
        with query.stopwatch.measure_step("link"):
            async with asyncio.timeout(graph.timeout_s):
                found = await snapshot.find_aliases(query.caller.tenant, keys)
    except (AnabranchError, TimeoutError):
        return []
    return choose_aliases(plan, found)


def choose_aliases(plan: QueryPlan, found: Iterable[EntityAlias]) -> list[AliasLink]:
    """Return links without names inside longer ones, in order of the question.

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
        if len(entities) == 1 and entities[0].entity_key not in plan.names:
            links.append(AliasLink(span, plan.question[span.start : span.end], entities[0]))
    return sorted(links, key=lambda link: link.span.start)


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
    return (
        f"“{link.text}” is taken as an alias of {link.entity.name} ({link.entity.type}). Set "
        'overrides to {"graph": {"aliases": false}} to search without it.'
    )
