"""The repository's folder as working folder: studies name models, clusters and templates from there."""

from __future__ import annotations

import pytest
from published_runs import ROOT


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
