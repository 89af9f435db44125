"""What the report says of the network, the critical path, and pairs of dimensions."""

import pytest
from scaleacross.report import StudyFacts
from scaleacross.report.findings import load_findings
from scaleacross.report.heatmap import best_scores, heat_map, ordered, pair_of
from scaleacross.report.network import compared, critical_section, network_section, utilisation
from synthetic_study import TIERS, write_study


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder)
    return load_findings(folder, StudyFacts("made-up", tiers=TIERS))


def test_tiers_side_by_side(findings):
    section = network_section(findings)
    assert section["designs"] == ["winner", "production"]
    assert [tier for tier, _ in section["rows"]] == list(TIERS)
    (_, winner), (_, production) = compared(findings)
    campus = section["rows"][-1][1]
    assert len(campus) == 8 and campus[0] == "4.00" and campus[4] == "90.0" and campus[3] == "4.0 %"
    assert float(campus[2].replace(",", "")) == pytest.approx(46000 * 8 / winner["iteration_time_s"], rel=5e-3)
    assert section["binds"] == [("node ports", "winner"), ("campus uplinks", "production")]
    assert production["bottleneck"] == "campus uplinks"


def test_designs_that_the_same_binds_are_named_together(tmp_path):
    rows = [row | {"bottleneck": "compute"} if row["status"] == "ok" else row for row in write_study(tmp_path)]
    write_study(tmp_path, rows=rows)
    section = network_section(load_findings(tmp_path, StudyFacts("made-up")))
    assert section["binds"] == [("compute", "winner and production")]


def test_bars_show_the_rows(findings):
    axes = utilisation(findings).axes[0]
    lengths = [bar.get_width() for bar in axes.patches]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["compute", *(f"{tier} links" for tier in TIERS)]
    for k, (_, row) in enumerate(compared(findings)):
        told = lengths[k * len(names) : (k + 1) * len(names)]
        assert told[0] == pytest.approx(100 * row["compute_s"] / row["iteration_time_s"])
        assert told[1:] == pytest.approx([100 * row[f"busy_{tier}"] for tier in TIERS])


def test_a_study_whose_simulator_tells_nothing_has_no_section(tmp_path):
    rows = write_study(tmp_path)
    for row in rows:
        for name in [name for name in row if name.startswith(("sent_", "cut_", "busy_", "bottleneck"))]:
            del row[name]
    write_study(tmp_path, rows=rows)
    section = network_section(load_findings(tmp_path, StudyFacts("made-up")))
    assert section["rows"] == [] and section["binds"] == []


def test_the_critical_path_as_a_table():
    section = critical_section([("winner", {"compute": 3.0, "dp": 1.0}), ("production", {}), ("x", {"tp": 2.0})])
    assert section["designs"] == ["winner", "x"]
    assert section["rows"] == [
        ("compute", ["3.00 s", "75.0 %", "0 s", "0.0 %"]),
        ("data-parallel communication", ["1.00 s", "25.0 %", "0 s", "0.0 %"]),
        ("tensor-parallel communication", ["0 s", "0.0 %", "2.00 s", "100.0 %"]),
    ]
    assert critical_section([("winner", {})])["rows"] == []


def test_the_pair_combines_freely(findings):
    """Schedule and chunks have large effects, but each excludes most values of the other."""
    across, down = pair_of(findings, findings.effects())
    assert {across, down} != {"schedule", "chunks"}
    times = best_scores(findings, across, down)
    assert len(times) >= 0.75 * len(findings.values[across]) * len(findings.values[down])
    for (one, other), time in times.items():
        own = [row for row in findings.best() if (str(row[across]), str(row[down])) == (one, other)]
        assert time == min(row["iteration_time_s"] for row in own)


def test_the_map_marks_the_best_and_what_did_not_run(findings):
    texts = [text.get_text() for text in heat_map(findings, "schedule", "chunks").axes[0].texts]
    assert sum("best" in text for text in texts) == 1
    ran = best_scores(findings, "schedule", "chunks")
    assert texts.count("no point ran") == 6 - len(ran)


def test_values_that_are_numbers_are_in_order():
    assert ordered(["16", "8", "32"]) == ["8", "16", "32"]
    assert ordered(["zbv", "1f1b"]) == ["zbv", "1f1b"]
