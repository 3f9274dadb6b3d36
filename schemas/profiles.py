"""Profiles: how questions are answered.

A profile has sections, and a type of profile is a group of sections. Files in `profiles/` are
validated by these models. Only chunking profiles affect what is indexed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field, create_model

from schemas.answer_profiles import AnswerProfile, ContextProfile, GenerationProfile
from schemas.budgets import BudgetProfile, RunProfile
from schemas.channels import CHANNEL_DECLARATIONS, CHANNELS, Channel, ChannelProfile
from schemas.facts import FactsProfile
from schemas.generations import ChunkSizes
from schemas.planning import PlanProfile, RouteProfile
from schemas.prompts import PromptProfile
from schemas.values import IdentifierKind, Value


class _NamedProfile(Value):
    name: str = Field("default", description="Name of the profile.")


if TYPE_CHECKING:

    class _ChannelWeights(Value): ...

    class _ChannelProfiles(_NamedProfile): ...

else:
    _ChannelWeights = create_model(
        "ChannelWeights",
        __base__=Value,
        **{
            channel.name: (
                float,
                Field(
                    channel.weight,
                    ge=0,
                    le=10,
                    description=f"Weight of the {channel.name} channel.",
                ),
            )
            for channel in CHANNEL_DECLARATIONS
        },
    )
    _ChannelProfiles = create_model(
        "ChannelProfiles",
        __base__=_NamedProfile,
        **{
            channel.name: (type(channel.profile), channel.profile)
            for channel in CHANNEL_DECLARATIONS
        },
    )


class FusionProfile(_ChannelWeights):
    """How the channels' candidates are combined: the weight of each channel, and the method."""

    method: Literal["zscore", "rrf"] = "zscore"
    """Combine standardized scores, or reciprocal ranks (RRF)."""
    rrf_k: int = Field(60, ge=1, le=1000, description="Constant k of reciprocal rank fusion.")
    bigram: float = Field(0.6, ge=0, le=2)
    """Weight of adjacent word pairs, added to the lexical score."""
    full_coverage: float = Field(0.5, ge=0, le=2)
    """Share of the question's idf mass in the best lexical hit from which on the lexical channel
    has its full weight; below, the weight shrinks in proportion. 0 never shrinks it.
    """
    unnamed_semantic: float = Field(1.25, ge=0, le=10)
    """Factor on `semantic` if the question names no document."""
    unnamed_graph: float = Field(0.5, ge=0, le=10, description="The same factor on `graph`.")
    background: float = Field(0.3, ge=0, le=1)
    """Share of a passage's mean semantic score with general questions that is subtracted from its
    score, for a question that names no document.
    """
    named: float = Field(20.0, ge=0, le=100)
    """Weight of a document that the question names, in deviations of the channels' scores. 0 links
    no names.
    """
    bridged: float = Field(18.0, ge=0, le=100)
    """Weight of a document whose name a seed passage holds, in deviations of the channels' scores;
    1 beside reciprocal ranks. 0 follows no bridges.
    """
    title: float = Field(3.0, ge=0, le=100)
    """Weight of the share of the question's idf mass that the document's title holds. Applies if
    the question names no document and `method` is `zscore`.
    """
    freshness: float = Field(0.0, ge=0, le=100)
    """Weight of the document's date: 1 for today, halved with every `freshness_half_life_days` of
    age.
    """
    freshness_half_life_days: float = Field(365.0, ge=1, le=36_500)
    """Days in which the freshness of a document halves."""
    metadata: float = Field(0.0, ge=0, le=100)
    """Weight of tags, collection and textual metadata whose words the question holds: .5 for one
    such value, .75 for two.
    """
    entity_overlap: float = Field(0.0, ge=0, le=100)
    """Weight of the share of the question's linked entities that a chunk mentions."""
    hop: float = Field(0.0, ge=0, le=100)
    """Weight of the nearness in the graph: 1 for a chunk that mentions a linked entity, 1/2 for one
    that mentions a neighbor, 1/3 for the next.
    """
    edge_types: dict[
        Annotated[str, Field(min_length=1, max_length=200)], Annotated[float, Field(ge=0, le=100)]
    ] = Field({}, max_length=100)
    """Weights by type of relation, for chunks that state such a relation of a linked entity. The
    heaviest counts.
    """
    per_document: int | None = Field(None, ge=1)
    """Maximum number of results from one document."""
    near_duplicates: bool = True
    """Fold nearly identical passages into the best one."""
    duplicate_similarity: float = Field(0.9, ge=0.5, le=1)
    """Share of common word triples (Jaccard) from which on passages are folded."""

    def get_weight(self, channel: Channel) -> float:
        return float(getattr(self, channel))

    @property
    def term_weights(self) -> dict[str, float]:
        """The weights of the terms that need facts about documents and graph, without zeros."""
        weights = {
            "freshness": self.freshness,
            "metadata": self.metadata,
            "entity_overlap": self.entity_overlap,
            "hop": self.hop,
            # The term is the weight of a type.
            "edge_type": 1.0 if any(self.edge_types.values()) else 0.0,
        }
        return {name: weight for name, weight in weights.items() if weight}


class BridgeProfile(Value):
    """How names in passages are followed to the documents that have them.

    Part of the graph channel. Seeds are the documents that the question names, and the best
    passages.
    """

    passages: int = Field(3, ge=0, le=20, description="Best passages that are seeds.")
    passage_weight: float = Field(0.25, ge=0, le=1)
    """Weight of such a seed; a named document has up to 1."""
    max_shared: int = Field(3, ge=1, le=20)
    """Documents that may share a name that is followed."""
    window: int = Field(12, ge=1, le=100)
    """Tokens on either side of a name that are compared."""
    temperature: float = Field(0.06, gt=0, le=10)
    """Difference of scores by which a bridge's share falls to 1/e of the best."""


class RerankProfile(Value):
    """How the fused candidates are reranked."""

    reranker: Literal["default", "none"] = Field("default", description="Reranker to use.")
    weight: float = Field(2.0, ge=0, le=10)
    """Weight of the reranker's standardized score, for a reranker whose score is added."""
    named_factor: float = Field(0.25, ge=0, le=10)
    """Factor on that weight for a question that names a document."""
    word_idf: Literal["never", "unnamed", "always"] = "unnamed"
    """For which questions a late-interaction reranker orders passages by the idf of the question's
    words in the index, instead of by the passages alone: those that name no document, all, or none.
    It counts as much as the lexical channel does by `fusion.full_coverage`. The score that refusal
    is decided by stays the same.
    """
    background: float = Field(0.3, ge=0, le=1)
    """Share of a passage's mean late-interaction score with general questions that is subtracted
    from its score, where `word_idf` orders the passages.
    """
    parents: int = Field(50, ge=1, le=200, description="Passages to rerank.")
    keep: int = Field(10, ge=1, le=100, description="Passages to keep after reranking.")
    timeout_s: float = Field(10.0, gt=0, le=120, title="Time-out")
    """Seconds after which the fused order is used instead."""
    expand: Literal["max", "sum"] = "max"
    """How the scores of child chunks combine into the score of their parent."""


class CheckProfile(Value):
    """One check of the judge."""

    severity: Literal["hard", "soft", "off"] = "soft"
    """A failed `hard` check blocks the answer, a `soft` one lowers its confidence; an `off` check
    is not made.
    """
    threshold: float = Field(1.0, ge=0, le=1, description="Minimum score by rules to pass.")


class JudgeProfile(Value):
    """How answers are checked before they are returned."""

    citation_coverage: CheckProfile = CheckProfile(severity="hard")
    """Sentences have a verified citation."""
    groundedness: CheckProfile = CheckProfile(threshold=0.4)
    """Sentences say what their citations say."""
    hallucination: CheckProfile = CheckProfile(severity="hard")
    """Numbers, units, dates and codes stand in the cited passages."""
    relevance: CheckProfile = CheckProfile(threshold=0.3)
    """The answer is about the question."""
    consistency: CheckProfile = CheckProfile()
    """Sentences of the answer do not contradict each other."""
    toxicity: CheckProfile = CheckProfile()
    """The answer contains no insults or threats."""
    pii: CheckProfile = CheckProfile()
    """The answer shows no personal identifier."""
    bias: CheckProfile = CheckProfile()
    """The answer contains no prejudice about a group of people."""
    contradiction: CheckProfile = CheckProfile()
    """Sentences do not contradict their citations."""
    model: Literal["rules", "default"] = "rules"
    """Check by rules alone, or also by the chat model of `JUDGE__` where one is configured."""
    retry: bool = True
    """Write an answer that fails a hard check once more, with the reasons in the prompt. Quoted
    answers are not repeated.
    """
    hold: bool = False
    """Stream the words of an answer only after it has passed the judge."""
    timeout_s: float = Field(60.0, gt=0, le=600, description="Seconds to wait for the judge model.")
    prompt: PromptProfile = Field(PromptProfile(), description="Prompt of the judge model.")


class RedactionProfile(Value):
    """Which personal identifiers are masked after retrieval, in responses and stored runs."""

    kinds: list[IdentifierKind] = Field([], max_length=6)
    """Kinds to mask: US social security numbers, e-mail addresses, phone numbers, payment cards,
    and the Brazilian CPF and CNPJ. Empty masks nothing.
    """
    phone_regions: list[Annotated[str, Field(pattern="^[A-Z]{2}$")]] = Field(
        ["US", "BR"], max_length=20
    )
    """Countries (ISO 3166) whose national phone numbers are recognized. Numbers with a `+` are
    recognized for every country.
    """


class Profile(_ChannelProfiles):
    """Settings for answering questions."""

    plan: PlanProfile = PlanProfile()
    route: RouteProfile = RouteProfile()
    fusion: FusionProfile = FusionProfile()
    bridges: BridgeProfile = BridgeProfile()
    rerank: RerankProfile = RerankProfile()
    answer: AnswerProfile = AnswerProfile()
    redaction: RedactionProfile = RedactionProfile()
    facts: FactsProfile = FactsProfile()
    judge: JudgeProfile = JudgeProfile()
    budget: BudgetProfile = BudgetProfile()
    run: RunProfile = RunProfile()

    def get_channel(self, channel: Channel) -> ChannelProfile:
        settings: ChannelProfile = getattr(self, channel)
        return settings


QueryProfileType = Literal["retrieval", "fusion", "context", "generation", "judge", "graph"]
"""A type whose profiles a workflow or a request selects."""
ProfileType = Literal["workflow", "chunking", QueryProfileType]
PROFILE_TYPES: tuple[ProfileType, ...] = get_args(ProfileType)

SECTIONS_BY_TYPE: Mapping[ProfileType, tuple[str, ...]] = {
    "retrieval": ("plan", "route", *(name for name in CHANNELS if name != "graph")),
    "fusion": ("fusion", "rerank"),
    "context": ("answer", "redaction", "facts"),
    "generation": ("answer", "run"),
    "judge": ("judge",),
    "graph": ("graph", "bridges"),
    "chunking": ("chunk",),
}
"""A workflow has the sections of every type but chunking, and `budget`: a request that chooses
other profiles of these types keeps the budget of its workflow. Two types share section `answer`,
each with settings of its own.
"""

if TYPE_CHECKING:

    class SelectedProfiles(Value): ...

else:
    SelectedProfiles = create_model(
        "SelectedProfiles",
        __base__=Value,
        **{
            name: (str, Field("default", description=f"Name of the {name} profile."))
            for name in get_args(QueryProfileType)
        },
    )


class WorkflowProfile(Profile):
    """A file of a workflow: one profile of each type, and settings that override theirs."""

    profiles: SelectedProfiles = SelectedProfiles()
    """Names of the profiles that the workflow consists of."""


SECTION_MODELS: Mapping[ProfileType, Mapping[str, type[Value]]] = {
    "context": {"answer": ContextProfile},
    "generation": {"answer": GenerationProfile},
    "chunking": {"chunk": ChunkSizes},
}
"""Models of sections that differ from those of a workflow."""


def _build_file_model(profile_type: ProfileType) -> type[Value]:
    fields = {
        name: (field.annotation, field.default) for name, field in Profile.model_fields.items()
    } | {name: (model, model()) for name, model in SECTION_MODELS.get(profile_type, {}).items()}
    model: type[Value] = create_model(  # type: ignore[call-overload]
        f"{profile_type.title()}Sections",
        __base__=Value,
        **{name: fields[name] for name in SECTIONS_BY_TYPE[profile_type]},
    )
    return model


FILE_MODELS: Mapping[ProfileType, type[Value]] = {
    "workflow": WorkflowProfile,
    **{name: _build_file_model(name) for name in SECTIONS_BY_TYPE},
}
"""The model of a profile's file, by type."""


class NamedProfile(Value):
    """A profile with all its settings."""

    type: ProfileType = Field(description="Type of the profile.")
    name: str = Field(description="Name of the profile.")
    profiles: dict[QueryProfileType, str] = {}
    """Profiles that a workflow consists of, by type."""
    settings: dict[str, Any] = Field(description="Settings by section, with their defaults.")
    sha256: str = Field(description="Hash of the settings.")


class ReloadedConfig(Value):
    """Result of reading the profiles again."""

    changed: list[str]
    """Profiles that were added, changed or removed, as `type/name`."""
    sha256: str = Field(description="Hash of all profiles that are in use now.")


SettingOrigin = Literal["default", "web UI", "file", "environment", "command line"]
ReindexStage = Literal["transcribe", "chunk", "extract", "embed"]


class SettingValue(Value):
    """A setting in effect."""

    key: str = Field(description="Dotted name, such as `chunk.child_tokens`.")
    value: Any = Field(description="Value, null if unset. Secrets are masked.")
    origin: SettingOrigin
    """Where the value comes from. `up` passes its data folder, database and token to its processes
    in the environment.
    """
    environment: str = Field(description="Environment variable that sets it.")
    reindex_from: ReindexStage | None
    """Stage from which documents are processed again after a change, in a new generation. Null: the
    change takes effect when the processes restart.
    """
