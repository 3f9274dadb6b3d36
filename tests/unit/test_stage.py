"""Rules that the list of stages must satisfy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from processors import STAGES, embed, extract
from schemas.topics import Topic
from streams.stage import (
    require_event_per_topic,
    require_one_projector_per_topic,
    require_upstream_stages,
)


def test_second_projector_of_a_topic_is_refused_with_both_names() -> None:
    projecting_extract = replace(extract.STAGE, project=embed.STAGE.project)
    stages = [projecting_extract if stage is extract.STAGE else stage for stage in STAGES]
    with pytest.raises(ValueError, match=r"Stages embed and extract both project topic chunked\."):
        require_one_projector_per_topic(stages)


def test_stages_that_only_react_may_share_a_topic() -> None:
    require_one_projector_per_topic([embed.STAGE, extract.STAGE])


def test_topic_that_no_event_names_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No event names topic notes\. Name it"):
        require_event_per_topic(["raw", Topic("notes", "Notes.")], [])


def test_stage_with_generation_topic_needs_an_upstream_stage() -> None:
    with pytest.raises(ValueError, match=r'Add `"names": "chunk"` to UPSTREAM_STAGES'):
        require_upstream_stages(
            [replace(one, name="names") if one is extract.STAGE else one for one in STAGES]
        )
