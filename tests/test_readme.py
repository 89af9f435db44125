"""What the README says of the code is held to the code."""

from __future__ import annotations

import re
from pathlib import Path

from scaleacross.cli.main import main
from scaleacross.report.columns import dictionary_markdown

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_data_dictionary_is_the_one_of_the_code() -> None:
    found = re.search(r"<!-- columns: .*?-->\n(.*?)\n<!-- end of columns -->", README, re.S)
    assert found is not None
    assert found.group(1).strip() == dictionary_markdown().strip()


def test_every_link_to_a_file_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_command_named_exists() -> None:
    named = re.findall(r"^\s*scaleacross ([a-z]+)", README, re.M) + re.findall(r"`scaleacross ([a-z]+)", README)
    commands = set(named)
    assert {"sim", "check", "twin", "expand"} <= commands
    for command in commands:
        try:
            main([command, "--help"])
        except SystemExit as stop:
            assert stop.code == 0, command


def test_nothing_is_left_to_fill_in() -> None:
    assert "@@" not in README
