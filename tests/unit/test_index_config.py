from __future__ import annotations

import pytest

from anabranch.config.index_config import INDEX_SECTIONS, check_index_settings
from schemas.errors import ConfigurationError


@pytest.mark.parametrize(
    "assignment", ["api.port=1", "log.encrypt=false", "cache.answers=0", "data_dir=x"]
)
def test_non_index_setting_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_index_settings(["chunk.child_tokens=120", assignment])
    assert caught.value.code == "NOT_AN_INDEX_SETTING"
    assert assignment in caught.value.detail and all(
        f"{section}." in caught.value.remedy for section in INDEX_SECTIONS
    )


def test_index_settings_are_accepted() -> None:
    check_index_settings(f"{section}.model=x" for section in INDEX_SECTIONS)
