"""The section on joint optimization, from the files beside the tables."""

from pathlib import Path

from scaleacross.report.joint import joint_section

TABLE = """os,method,order,point_id,iteration_time_s,loss_pct,pair,pair_gain_pct,dimensions,dimensions_gain_pct
1,joint,,a,1.0,0.0,,,,
1,sequential,"placement, schedule, network",b,1.25,25.0,placement x schedule,25.0,pp x schedule,25.0
7,joint,,c,2.0,0.0,,,,
7,sequential,"placement, schedule, network",c,2.0,0.0,,,,
"""
CERTIFICATE = """
environments:
- {environment: {os: '1'}, points: 1000, simulated: 12, pruned: 900, infeasible: 88}
"""


def test_the_section(tmp_path: Path) -> None:
    (tmp_path / "interplay.csv").write_text(TABLE)
    (tmp_path / "certificate.yaml").write_text(CERTIFICATE)
    found = joint_section(tmp_path, {"os": "1"})
    assert [row["loss"] for row in found["rows"]] == ["0.00 %", "25.00 %"]
    assert found["rows"][1]["method"] == "sequential: placement, schedule, network"
    (first, told), (_, other) = found["sentences"]
    assert first == "os 1" and "25.00 %" in told and "pp x schedule" in told
    assert "finds the joint optimum" in other
    assert "12 of 1,000 points were simulated" in found["search"][0]


def test_without_files_there_is_no_section(tmp_path: Path) -> None:
    assert joint_section(tmp_path, {}) == {"rows": [], "sentences": [], "search": []}
