"""Files that are not text: what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scaleacross.documents import read_mapping
from scaleacross.errors import InvalidInput
from scaleacross.schema import read_yaml


@pytest.mark.parametrize("read", [read_yaml, lambda path: read_mapping(path, "yaml")])
def test_a_file_that_is_not_utf8_does_not_suggest_itself(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(InvalidInput, match="is not UTF-8 text") as caught:
        read(path)
    assert caught.value.fix == "save it as UTF-8, or name another file"


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("name: a\n")
    with pytest.raises(InvalidInput, match=r"E-FILE: .*No such file.*did you mean 'study.yaml'\?"):
        read_yaml(tmp_path / "studi.yaml")
