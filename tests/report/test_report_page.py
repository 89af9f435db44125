"""The page: well-formed, self-contained, complete, safe, and sensible when there is little to tell."""

import re
import resource
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scaleacross.report import Assumption, Bar, Gantt, StudyFacts, write_report
from scaleacross.report.facts import facts_from
from scaleacross.report.page import FIRST_ROWS, LEAST_FAILED, MOST_ROWS
from synthetic_study import DIMENSIONS, ENVIRONMENT, PRODUCTION, TIERS, make_rows, write_study

VOID = {"meta", "input", "br", "wbr", "link", "img", "hr"}
FIGURES = ["breakdown", "effects", "gantt", "gantt-detail", "heatmap", "network", "pareto-iteration_time_s-memory_gib"]
FIGURES.append("speedups")
GANTTS = [
    Gantt(name, [[Bar(0.1 * n, 0.1 * n + 0.1, "FB"[n % 2], n)] for n in range(4)]) for name in ("winner", "other")
]
FACTS = StudyFacts(
    "made-up",
    model="a model",
    gpus=16384,
    training={"global_batch": 2048},
    baselines={"production": PRODUCTION},
    tiers=TIERS,
    assumptions=[Assumption("zone size", "2,048 GPUs")],
    provenance={"scaleacross": "0.1.0"},
    paths={"traces": "results/made-up/traces/x"},
)


class Page(HTMLParser):
    """Checks that elements nest, and collects text, attributes and ids."""

    def __init__(self, html):
        super().__init__()
        self.open, self.texts, self.attributes, self.ids = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.note(attrs)

    def handle_startendtag(self, _tag, attrs):
        self.note(attrs)

    def note(self, attrs):
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def report(folder, facts=FACTS, gantts=(), **study):
    rows = write_study(folder, **study)
    return rows, Page(write_report(folder, facts, gantts).read_text())


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    rows, page = report(folder, gantts=GANTTS)
    return folder, rows, page


def test_every_figure_is_there_as_svg_and_png(full):
    folder, _, page = full
    assert sorted(path.stem for path in (folder / "figures").glob("*.png")) == FIGURES
    assert sorted(path.stem for path in (folder / "figures").glob("*.svg")) == FIGURES
    assert {f"figure-{name}" for name in FIGURES} <= set(page.ids)


def test_ids_are_distinct(full):
    ids = full[2].ids
    assert len(ids) == len(set(ids))


def test_the_page_needs_nothing_else(full):
    folder, _, page = full
    html = (folder / "report.html").read_text()
    assert not re.search(r"https?://|//[a-z]+\.[a-z]", html)
    assert not re.search(r"<(link|iframe|object|embed|base)\b|@import", html)
    for name, value in page.attributes:
        if name in ("src", "href", "action", "data"):
            assert value.startswith(("#", "data:image/png;base64,"))
        assert not name.startswith("on")
    assert set(re.findall(r"url\((.)", html)) <= {"#"}


def test_a_long_command_wraps_and_a_number_keeps_its_unit(full):
    """Ids in cells stay in one piece; a command there would push the page to twice a screen's width."""
    html = (full[0] / "report.html").read_text()
    wraps = re.search(r"\.inputs td code \{([^}]*)\}", html)
    assert wraps and "white-space: normal" in wraps[1] and html.index("td code { white-space: nowrap") < wraps.start()
    assert re.search(r'<table class="inputs"><tbody><tr><th>traces', html)
    assert "td.n { white-space: nowrap; }" in html


def test_links_within_the_page_lead_somewhere(full):
    page = full[2]
    targets = {value[1:] for name, value in page.attributes if name == "href" and value.startswith("#")}
    assert targets <= set(page.ids)


def test_the_winner_is_told_in_words_and_numbers(full):
    text = full[2].text
    for phrase in (
        "pipeline parallel crosses the campus cut",
        "+16.3 %",
        "6.85 s an iteration against 7.97 s",
        "less exposed data-parallel communication (1.76 s → 0.441 s)",
        "oversubscription\N{NO-BREAK SPACE}1:2.8",
        "Over production, in 4 environments: +15.2 % to +49.1 %",
        "zone size 2,048 GPUs",
        "16,384 GPUs",
    ):
        assert phrase.replace("\N{NO-BREAK SPACE}", " ") in text.replace("\N{NO-BREAK SPACE}", " ")


def test_every_point_is_in_the_table_when_there_are_not_too_many(tmp_path):
    rows, page = report(tmp_path, environment={})
    assert len(rows) == 288
    assert {row["point_id"] for row in rows} <= set(page.texts)
    assert "results.csv beside this page" not in page.text


def test_a_long_table_is_cut_with_a_note_and_keeps_some_of_every_kind(full):
    _, rows, page = full
    shown = {row["point_id"] for row in rows} & set(page.texts)
    assert len(rows) > MOST_ROWS == len(shown)
    assert f"shows {MOST_ROWS:,} of {len(rows):,} points" in page.text
    assert {row["point_id"] for row in rows if row["status"] == "ok"} <= shown
    failed = [row for row in rows if row["status"] != "ok" and row["point_id"] in shown]
    assert len(failed) >= LEAST_FAILED


def test_only_the_first_rows_are_laid_out_at_once(full):
    html = (full[0] / "report.html").read_text()
    rows = re.findall(r"<tr class=[^>]*data-s=[^>]*>", html)
    assert len(rows) == MOST_ROWS
    assert [" hidden" in row for row in rows] == [n >= FIRST_ROWS for n in range(MOST_ROWS)]
    assert f"{FIRST_ROWS} of {MOST_ROWS} rows" in full[2].text and '<button id="more" type="button">' in html


def test_every_reason_is_told(full):
    _, rows, page = full
    for word in ("E-MEMORY", "E-SCHEDULE", "E-CONSTRAINT", "E-LIMIT"):
        assert word in page.text
    assert f"{sum(row['status'] != 'ok' for row in rows)} of {len(rows):,} points cannot win" in page.text


def test_strings_of_the_user_are_escaped(tmp_path):
    nasty = "<script>alert('x')</script>&\"<b>"
    dimensions = {**DIMENSIONS, "micro_batch": [1], "nasty": [nasty, "b"], "a<b>&": ["1"]}
    facts = StudyFacts(nasty, model=nasty, assumptions=[Assumption(nasty, nasty)], provenance={nasty: nasty},
                       baselines={nasty: {"order": nasty}}, paths={nasty: nasty}, flags={nasty: nasty})  # fmt: skip
    rows, page = report(tmp_path, facts, dimensions=dimensions, environment={}, baselines={nasty: {}})
    html = (tmp_path / "report.html").read_text()
    assert len(re.findall("<script", html)) == 1 and "<b>&" not in html.split("<main>")[1].replace("<b>+", "")
    assert nasty in page.texts and {row["point_id"] for row in rows} <= set(page.texts)


def test_one_environment_without_speedups_over_environments(tmp_path):
    _, page = report(tmp_path, environment={})
    assert "in this environment" not in page.text and "+16.3 % training speed over production" in page.text


def test_a_baseline_that_no_point_matches_is_told(tmp_path):
    _, page = report(tmp_path, environment={}, baselines={"production": {"schedule": "gpipe"}})
    assert "No feasible point matches the baseline “production” here" in page.text
    assert not (tmp_path / "figures/speedups.svg").exists() and "figure-breakdown" in page.ids


def test_no_baseline_at_all(tmp_path):
    facts = StudyFacts("x", environment=tuple(ENVIRONMENT))
    _, page = report(tmp_path, facts, baselines={})
    assert "The study names no baseline" in page.text and "1:2.8" in page.text


def test_one_feasible_point(tmp_path):
    rows = make_rows(DIMENSIONS, {})
    ok = [row for row in rows if row["status"] == "ok"][:1]
    rows = ok + [row for row in rows if row["status"] != "ok"]
    _, page = report(tmp_path, environment={}, rows=rows, baselines={"production": {}})
    assert "is itself the best design found" in page.text
    assert "the fastest of 1 that ran" in page.text


def test_a_single_point_that_varies_nothing(tmp_path):
    rows = [row for row in make_rows(DIMENSIONS, {}) if row["status"] == "ok"][:1]
    _, page = report(tmp_path, environment={}, rows=rows)
    assert "The study varies no dimension." in page.text and "Every point ran." in page.text


def test_no_feasible_point_still_explains(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/pareto.svg").write_text("of an earlier run")
    rows = [row for row in make_rows(DIMENSIONS, {}) if row["status"] != "ok"]
    _, page = report(tmp_path, environment={}, rows=rows)
    assert f"None of the {len(rows)} points is feasible." in page.text
    assert "The closest miss needs 74.6 GiB of 74.5 GiB" in page.text and "E-MEMORY" in page.text
    assert list((tmp_path / "figures").iterdir()) == []


def test_a_simulator_that_tells_no_parts_of_the_time(tmp_path):
    rows = [row for row in make_rows(DIMENSIONS, {}) if row["status"] == "ok"]
    for row in rows:
        for name in [name for name in row if name.startswith("exposed_") or name in ("compute_s", "idle_s")]:
            del row[name]
    _, page = report(tmp_path, environment={}, rows=rows)
    assert "The simulator tells no parts of the time." in page.text and "+16.3 %" in page.text


def test_facts_are_read_from_what_the_flow_writes():
    content = {
        "study": {
            "name": "s", "model": "m", "cluster": "c", "training": {"global_batch": 8},
            "environment": {"latency": ["1 us"]}, "fixed": {"tp": 8}, "dimensions": {"pp": [1, 2]},
            "baselines": {"production": {"pp": 1}},
        },
        "dimension_columns": ["latency", "tp", "pp", "dp"],
        "tiers": ["node", "campus"],
        "pareto": [["iteration_time_s", "memory_gib"]],
        "gpus": 16,
        "assumptions": [{"subject": "a", "text": "b"}],
    }  # fmt: skip
    optimum = {"environments": [{"point_id": "p", "traces": "t", "configuration": "c"}, {"point_id": None}]}
    facts = facts_from(content, optimum, {"versions": {"python": "3.11", "numba": None}, "design_key": "k"})
    assert facts.environment == ("latency",) and facts.derived == ("dp",) and facts.chosen == ("p",)
    assert facts.provenance == {"python": "3.11", "design key": "k"}
    assert facts.paths == {"Chakra traces": "t", "ASTRA-sim configuration": "c"}
    assert facts.fronts == (("iteration_time_s", "memory_gib"),) and facts.complete
    assert facts.assumptions == (Assumption("a", "b"),)


def test_the_report_is_quick_imports_included(tmp_path):
    write_study(tmp_path, environment={"oversubscription": ["1:2.8", "1:7"]})
    code = (
        "from scaleacross.report import *\n"
        "bars = [[Bar(.01 * n, .01 * n + .01, 'FB'[n % 2], n) for n in range(256)] for _ in range(16)]\n"
        f"write_report({str(tmp_path)!r}, StudyFacts('x'), [Gantt('a', bars), Gantt('b', bars)])"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 8  # CPU time: others may be at work
