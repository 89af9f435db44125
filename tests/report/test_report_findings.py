"""What the tables say: winner, baselines, Pareto front, effects, reasons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaleacross.errors import InvalidInput
from scaleacross.report.findings import TIME, Findings, StudyFacts, count_reasons, load_findings
from scaleacross.report.tables import Table, number_of
from scaleacross.report.words import design_words, speedup_sentence, tie_sentence, why_sentences
from scaleacross.search.objective import ITERATION_TIME
from synthetic_study import ENVIRONMENT, PRODUCTION, write_study


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder)
    return load_findings(folder, StudyFacts("made-up"))


def test_the_environment_is_read_off_the_speedups(findings):
    assert findings.environment == tuple(ENVIRONMENT)
    assert len(findings.environments) == 4
    assert findings.headline == {"oversubscription": "1:2.8", "uplink_latency": "75 us"}
    assert set(findings.varied) == {
        "pp", "order", "schedule", "chunks", "micro_batch", "dp_sharding", "collective",
    }  # fmt: skip
    assert findings.fixed == {"tp": "8", "cp": "1"}


def test_the_winner_of_each_environment_is_its_fastest_ok_point(findings):
    for environment in findings.environments:
        rows = [
            row
            for row in findings.results.rows
            if row["status"] == "ok" and all(row[name] == value for name, value in environment.items())
        ]
        assert findings.winner(environment) is min(rows, key=lambda row: row[TIME])


def test_a_speedup_is_baseline_over_best_minus_one(findings):
    for item, row in zip(findings.comparisons, findings.speedups.rows, strict=True):
        assert item.speedup == pytest.approx(row["speedup_pct"] / 100)
        assert item.baseline == "production"
        assert {key: item.point[key] for key in PRODUCTION} == PRODUCTION


def test_runners_up_follow_the_winner_and_differ(findings):
    runners = findings.runners_up(4)
    times = [row[TIME] for row in [findings.winner(), *runners]]
    assert times == sorted(times) and len(set(times)) == 5


def test_effects_hold_the_best_time_of_each_value(findings):
    ok = findings.best()
    for effect in findings.effects():
        for value, best in effect.best.items():
            times = [row[TIME] for row in ok if row[effect.dimension] == value]
            assert best == min(times) if times else best != best
    spreads = [effect.spread for effect in findings.effects()]
    assert spreads == sorted(spreads, reverse=True) and spreads[0] > 0


def _simple(points):
    rows = tuple(
        {"point_id": str(n), "status": "ok", TIME: time, "memory_gib": memory}
        for n, (time, memory) in enumerate(points)
    )
    return Findings(StudyFacts("x"), Table((), rows), Table((), ()), (), ())


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(1, 80)), min_size=1, max_size=30))
def test_no_point_beats_the_front_and_the_front_beats_every_other(points):
    found = _simple(points)
    front = [(row[TIME], row["memory_gib"]) for row in found.pareto((TIME, "memory_gib"))]
    for time, memory in points:
        beaten = [(t, m) for t, m in front if t <= time and m <= memory]
        assert beaten
    for one in front:
        assert not [other for other in points if other != one and other[0] <= one[0] and other[1] <= one[1]]


def test_reasons_that_differ_in_numbers_count_as_one(findings):
    reasons = findings.reasons()
    assert sum(reason.count for reason in reasons) == len(findings.results.rows) - len(findings.ok)
    assert [reason.count for reason in reasons] == sorted((reason.count for reason in reasons), reverse=True)
    assert len([reason for reason in reasons if reason.text.startswith("E-MEMORY")]) == 1


def test_too_many_reasons_are_counted_by_error_id():
    rows = [
        {"status": "infeasible", "reason": f"E-{'AB'[n % 2]}: clash {chr(97 + n)}", "point_id": str(n)}
        for n in range(20)
    ]
    assert [(reason.text, reason.count) for reason in count_reasons(rows, 15)] == [("E-A", 10), ("E-B", 10)]


def test_the_closest_miss_exceeds_the_limit_by_least(findings):
    miss = findings.closest_miss()
    excess = [
        number_of(row, "memory_gib") / number_of(row, "memory_limit_gib")
        for row in findings.results.rows
        if row["status"] == "infeasible"
    ]
    assert miss["memory_gib"] / miss["memory_limit_gib"] == min(value for value in excess if value > 1)


def test_points_faster_than_physics_win_only_where_the_study_allows_it(tmp_path):
    rows = write_study(tmp_path, environment={}, baselines={})
    fastest = min((row for row in rows if row["status"] == "ok"), key=lambda row: row[TIME])
    fastest["status"] = "unphysical"
    write_study(tmp_path, environment={}, baselines={}, rows=rows)
    assert load_findings(tmp_path, StudyFacts("x")).winner()["point_id"] != fastest["point_id"]
    allowed = load_findings(tmp_path, StudyFacts("x", allow_unphysical=True))
    assert allowed.winner()["point_id"] == fastest["point_id"]


def test_the_chosen_point_of_the_flow_is_the_winner_where_times_are_equal(tmp_path):
    rows = write_study(tmp_path, environment={}, baselines={})
    first, second = sorted((row for row in rows if row["status"] == "ok"), key=lambda row: row[TIME])[:2]
    second[TIME] = first[TIME]
    write_study(tmp_path, environment={}, baselines={}, rows=rows)
    found = load_findings(tmp_path, StudyFacts("x", chosen=(second["point_id"],)))
    assert found.winner()["point_id"] == second["point_id"]
    assert [row["point_id"] for row in found.ties()] == [first["point_id"]]
    assert tie_sentence(found).startswith("One other point is exactly as fast, with other values of ")


def test_derived_columns_are_no_choice(tmp_path):
    write_study(tmp_path, environment={})
    found = load_findings(tmp_path, StudyFacts("x", derived=("pp",)))
    assert "pp" in found.dimensions and "pp" not in found.varied
    assert "pp" not in [effect.dimension for effect in found.effects()]


def test_a_missing_or_foreign_table_is_an_error_with_a_fix(tmp_path):
    with pytest.raises(InvalidInput, match=r"E-RESULTS: .*results.csv does not exist; run the study first"):
        load_findings(tmp_path, StudyFacts("x"))
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match=r"E-RESULTS: .* lacks point_id, status"):
        load_findings(tmp_path, StudyFacts("x"))


def test_the_winner_in_words(findings):
    words = design_words(findings, findings.winner())
    assert words[:2] == ["TP 8 × PP 16", "pipeline parallel crosses the campus cut"]
    assert "interleaved schedule, 4 chunks a rank" in words and "hierarchical collectives" in words


def test_why_names_what_shrank_and_what_grew(findings):
    item = findings.first_baseline()
    less, more = why_sentences(item)
    assert less.startswith("The gain comes from less exposed data-parallel communication (1.76 s → 0.441 s)")
    assert more.startswith("It pays with more exposed pipeline communication (0.126 s → 0.329 s)")
    assert speedup_sentence(item, ITERATION_TIME).startswith(
        "+16.3 % training speed over production: 6.85 s an iteration against 7.97 s"
    )
