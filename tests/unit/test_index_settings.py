from __future__ import annotations

import pytest

from anabranch.indexing import INDEX_SECTIONS, check_index_settings
from schemas.errors import ConfigurationError


@pytest.mark.parametrize("assignment", ["api.port=1", "log.encrypt=false", "cache.answers=0", "data_dir=x"])
def test_setting_that_no_index_knows_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_index_settings(["chunk.child_tokens=120", assignment])
    assert caught.value.code == "NOT_AN_INDEX_SETTING"
    assert assignment in caught.value.detail and all(f"{section}." in caught.value.remedy for section in INDEX_SECTIONS)


def test_settings_of_an_index_are_taken() -> None:
    check_index_settings(f"{section}.model=x" for section in INDEX_SECTIONS)
