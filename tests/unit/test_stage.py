"""Rules that the list of stages must satisfy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from processors import STAGES, embed, extract
from streams.stage import require_one_projector_per_topic


def test_second_projector_of_a_topic_is_refused_with_both_names() -> None:
    projecting_extract = replace(extract.STAGE, project=embed.STAGE.project)
    stages = [projecting_extract if stage is extract.STAGE else stage for stage in STAGES]
    with pytest.raises(ValueError, match=r"Stages embed and extract both project topic chunked\."):
        require_one_projector_per_topic(stages)


def test_stages_that_only_react_may_share_a_topic() -> None:
    require_one_projector_per_topic([embed.STAGE, extract.STAGE])
