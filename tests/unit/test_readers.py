"""Who reads what, when several generations stand beside each other."""

from __future__ import annotations

from anabranch.composition.genesis import PLAIN_TOPICS
from anabranch.composition.readers import Reader, endings_only, readers
from processors import STAGES, embed, transcribe
from schemas.generations import Generation, IndexConfig, State
from streams.stage import Stage


def generation(name: str, state: State, *own: str, base: dict[str, str] | None = None) -> Generation:
    topics = {topic: topic for topic in PLAIN_TOPICS} | (base or {}) | {topic: f"{topic}.{name}" for topic in own}
    return Generation(name=name, config=IndexConfig(), how={}, topics=topics, state=state)


def hosted(*generations: Generation, stages: tuple[Stage, ...] = STAGES) -> dict[str, Reader]:
    found = readers(generations, stages)
    groups = {reader.group: reader for reader in found}
    assert len(groups) == len(found), "two readers in one group would share its topic"
    return groups


G1 = generation("g1", "live")


def test_the_first_generation_reads_and_states_everything_once() -> None:
    groups = hosted(G1)
    assert {reader.stage for reader in groups.values()} == set(STAGES)
    assert groups["anabranch.transcribe.g1"].stage == transcribe.STAGE
    assert not any(reader.silent for reader in groups.values())


def test_a_rebuild_only_projects_and_tells_nobody() -> None:
    new = {name: reader for name, reader in hosted(G1, generation("g2", "building")).items() if name.endswith(".g2")}
    assert set(new) == {f"anabranch.{stage}.g2" for stage in ("chunk", "embed", "index", "graph")}
    assert all(reader.silent and reader.stage.react is None and reader.topic == reader.stage.topic for reader in new.values())


def test_another_embedder_runs_again_only_from_the_vectors_on() -> None:
    groups = hosted(G1, generation("g2", "building", "embedded"))
    assert groups["anabranch.embed.g2"].stage == embed.STAGE
    assert groups["anabranch.index.g2"].topic == "embedded.g2"
    assert groups["anabranch.chunk.g2"].stage.react is None
    assert groups["anabranch.graph.g2"].topic == "entities"
    assert "anabranch.extract.g2" not in groups


def test_another_parser_reads_the_accepted_documents_without_writing_them_again() -> None:
    groups = hosted(G1, generation("g2", "building", "ocr_done", "chunked", "entities", "embedded"))
    again = groups["anabranch.retranscribe.g2"]
    assert (again.topic, again.author, again.stage.counts, again.generation.name) == ("accepted", "transcribe", "visible", "g2")
    assert groups["anabranch.transcribe.g1"].stage == transcribe.STAGE
    assert all(groups[f"anabranch.{stage}.g2"].topic.endswith(".g2") for stage in ("chunk", "embed", "extract", "index", "graph"))


def test_who_was_promoted_says_what_becomes_of_documents_and_who_stands_by_goes_on() -> None:
    groups = hosted(generation("g1", "standby"), generation("g2", "live"))
    assert groups["anabranch.index.g2"].stage.react is endings_only
    assert groups["anabranch.embed.g1"].stage == embed.STAGE
    assert not any(reader.silent for reader in groups.values())


def test_the_heir_of_a_dropped_generation_goes_on_in_its_group_beside_its_own_projection() -> None:
    groups = hosted(generation("g2", "live"), generation("g3", "shadow"))
    assert (groups["anabranch.chunk.g1"].generation.name, groups["anabranch.chunk.g1"].stage.output) == ("g2", "chunked")
    assert groups["anabranch.chunk.g1"].stage.react is not None
    assert groups["anabranch.extract.g1"].generation.name == "g2"
    assert groups["anabranch.chunk.g2"].stage.react is endings_only
    assert groups["anabranch.transcribe.g1"].generation.name == "g2"
    assert groups["anabranch.chunk.g3"].stage.react is None


def test_a_topic_of_a_dropped_reindex_is_inherited_too() -> None:
    g2_topics = {topic: f"{topic}.g2" for topic in ("ocr_done", "chunked", "entities", "embedded")}
    groups = hosted(generation("g3", "live", base=g2_topics))
    assert groups["anabranch.retranscribe.g2"].generation.name == "g3"
    assert groups["anabranch.embed.g2"].topic == "chunked.g2"
    assert groups["anabranch.transcribe.g1"].stage.react is not transcribe.react
    assert groups["anabranch.embed.g3"].stage.react is endings_only
