"""Which stage reads which topic, for which generation, in which consumer group: decided from the generations that are there, and from nothing else.

The first generation states the facts of the plain topics. Another one has topics of its own for what it changes (`embedded.g2`), where its stages react;
what it shares with others it only projects. When the generation that stated the facts of a shared topic is dropped, the oldest that shares it goes on
where that one had come to, in its consumer group, and beside its own projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.composition.genesis import FIRST
from processors import transcribe
from processors.outcomes import endings
from schemas.events import DocumentAccepted
from schemas.generations import CHAIN, Generation
from schemas.ports.bundle import Ports
from schemas.ports.ledger import Claim
from streams.hosting import group_name
from streams.stage import Counted, Stage, Statement, nothing
from streams.topics import ACCEPTED, OCR_DONE, RAW

ANSWERING = ("live", "standby")
AGAIN = "retranscribe"
"""The stage `transcribe` of a generation that parses anew: documents and revisions are not its to write."""


@dataclass(frozen=True, slots=True)
class Reader:
    """`author` is the stage in whose name facts are stated; a `silent` one tells no outcomes."""

    stage: Stage
    author: str
    generation: Generation
    group: str
    topic: str
    silent: bool

    @property
    def key(self) -> tuple[object, ...]:
        """Two that are equal in this are the same reader: the state of a generation changes while it is read."""
        return (self.group, self.topic, self.generation.name, self.stage, self.silent)


def readers(generations: Sequence[Generation], stages: Sequence[Stage], producer_topics: Sequence[str] = ()) -> list[Reader]:
    """Of all generations that are not dropped, the oldest first. Each of `producer_topics` is read as topic `raw` is."""
    if not generations:
        return []
    plan = _Plan(generations, [one for one in generations if one.state in ANSWERING] or list(generations), producer_topics)
    return [reader for stage in stages for reader in plan.of(stage)]


@dataclass(frozen=True, slots=True)
class _Plan:
    generations: Sequence[Generation]
    answering: Sequence[Generation]
    producer_topics: Sequence[str]

    def of(self, stage: Stage) -> Iterator[Reader]:
        if stage.shared:
            yield Reader(stage, stage.name, self.answering[0], group_name(stage.name, None), stage.topic, silent=False)
            for topic in self.producer_topics if stage.topic == RAW else ():
                yield Reader(stage, stage.name, self.answering[0], group_name(stage.name, topic.partition(".")[2]), topic, silent=False)
        elif stage.counts == "latest":
            yield from self._of_documents(stage)
        else:
            for generation in self.generations:
                yield from self._of_generation(stage, generation)

    def _of_documents(self, stage: Stage) -> Iterator[Reader]:
        """Documents and revisions are projected once for all; texts are made once for each topic of texts."""
        trunk = self.answering[0]
        texts = _topic(trunk, OCR_DONE)
        own = stage if texts == OCR_DONE else replace(stage, react=_endings_of_acceptance)
        yield Reader(own, stage.name, trunk, group_name(stage.name, FIRST), stage.topic, silent=False)
        again = replace(stage, name=AGAIN, counts="visible", project=nothing)
        for topic in dict.fromkeys(_topic(generation, OCR_DONE) for generation in self.generations):
            if topic != texts or topic != OCR_DONE:
                author = self._heir(OCR_DONE, topic)
                yield Reader(again, stage.name, author, group_name(AGAIN, origin(topic)), ACCEPTED, author.state not in ANSWERING)

    def _of_generation(self, stage: Stage, generation: Generation) -> Iterator[Reader]:
        topic, silent = _topic(generation, stage.topic), generation.state not in ANSWERING
        stated = _topic(generation, stage.output or stage.topic)
        if origin(stated) == generation.name:
            yield Reader(stage, stage.name, generation, group_name(stage.name, generation.name), topic, silent)
            return
        if stage.project is not nothing:
            told = endings_only if stage.react is not None and not silent else None
            yield Reader(replace(stage, react=told), stage.name, generation, group_name(stage.name, generation.name), topic, silent)
        if stage.output is not None and self._is_orphan(stated) and self._heir(stage.output, stated) == generation:
            yield Reader(stage, stage.name, generation, group_name(stage.name, origin(stated)), topic, silent)

    def _is_orphan(self, topic: str) -> bool:
        return all(generation.name != origin(topic) for generation in self.generations)

    def _heir(self, plain: str, topic: str) -> Generation:
        """Who states the facts of a topic: the generation that it was made for, else the oldest that shares it, one that answers before others."""
        sharing = [one for one in (*self.answering, *self.generations) if _topic(one, plain) == topic]
        return next((one for one in sharing if one.name == origin(topic)), sharing[0])


def makes_facts(reader: Reader) -> bool:
    """Whether it states facts that the index is made from."""
    return reader.author in CHAIN and reader.stage.react not in (None, endings_only, _endings_of_acceptance)


def rest_of(reader: Reader) -> Reader | None:
    """What is left of a reader where another version of this program makes its facts: documents are still changed and withdrawn, and those that need a
    text wait for it. Of the others nothing: they are left alone, so that another worker goes on where they are."""
    return replace(reader, stage=replace(reader.stage, left=_needs_a_text)) if reader.stage.counts == "latest" else None


def _needs_a_text(item: Counted) -> bool:
    if item.claim is Claim.SUPERSEDED or item.unchanged:
        return False
    return isinstance(item.fact.data, DocumentAccepted) or item.revived is not None


def origin(topic: str) -> str:
    """The generation that a topic was made for."""
    return topic.partition(".")[2] or FIRST


async def endings_only(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """Of facts that another generation states: only what became of the document here."""
    return [statement for item in counted for statement in endings(item)]


async def _endings_of_acceptance(counted: Sequence[Counted], ports: Ports) -> list[Statement]:
    """What `transcribe` says of a document that it makes no text of: its text is made elsewhere."""
    over = [item for item in counted if item.unchanged or item.flip is not None or item.claim is Claim.SUPERSEDED]
    return await transcribe.react(over, ports)


def _topic(generation: Generation, plain: str) -> str:
    return generation.topics.get(plain, plain)
