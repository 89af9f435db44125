"""Comparison with published values: what a row may say, errors, order of rows, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError
from scaleacross.cli.main import main
from scaleacross.errors import InvalidInput
from scaleacross.model import load_model, training_flops
from scaleacross.published import Comparison, compare, summarise
from scaleacross.published.figure import write_scatter
from scaleacross.published.tables import COLUMNS, csv_rows, markdown
from scaleacross.study.published import Published
from scaleacross.study.schema import load_study
from scaleacross.study.tables import write_csv

NAMED = {"table": "T", "row": "R"}


def entry(**values: object) -> Published:
    return Published.model_validate({**NAMED, **values})


def compared(row: str, published: float, predicted: float, flops: float = 1e15) -> Comparison:
    return Comparison("T", row, "s", row, 8, published, predicted, flops, {"compute_s": predicted})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({}, "give one of"),
        ({"iteration_time": "1 s", "mfu": 0.5}, "give one of"),
        ({"iteration_time": "1.42"}, "unit"),
        ({"mfu": 1.2}, "less than 1"),
        ({"mfu": 0.5, "wehn": {}}, "extra"),
    ],
)
def test_a_row_states_one_value_with_its_unit(values: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match="(?i)" + word):
        entry(**values)


def test_a_rate_and_a_time_of_the_same_flops_agree() -> None:
    model = load_model("config/models/megatron-22b.yaml")
    tokens = 4 * 2048
    work = {"gpus": 8, "tokens": tokens, "peak_flops": 312e12}
    seconds = training_flops(model, tokens, 2048) / 8 / (0.4 * 312e12)
    assert entry(mfu=0.4).seconds(model, 2048, work) == pytest.approx(seconds)
    assert entry(tflops_per_gpu=0.4 * 312).seconds(model, 2048, work) == pytest.approx(seconds)
    assert entry(iteration_time=f"{seconds!r} s").seconds(model, 2048, work) == pytest.approx(seconds)


def test_true_is_not_one() -> None:
    measured = entry(iteration_time="1 s", when={"sequence_parallel": True})
    assert measured.fits({"sequence_parallel": True})
    assert not measured.fits({"sequence_parallel": 1})
    assert not measured.fits({})


def test_errors_and_order() -> None:
    rows = [compared("a", 10, 11), compared("b", 20, 19), compared("c", 20.05, 18), compared("d", 30, 18.5)]
    summary = summarise(rows)
    assert summary.mean_pct == pytest.approx((10 + 5 + 100 * (1 - 18 / 20.05) + 100 * (1 - 18.5 / 30)) / 4)
    assert summary.worst_pct == pytest.approx(100 * (1 - 18.5 / 30))
    assert (summary.by_time.pairs, summary.by_time.inversions) == (5, 1), "b and c are a tie; b before d is turned"
    assert summary.by_rate == summary.by_time, "the same FLOPs"
    other = [compared("a", 10, 10, 1e15), compared("b", 20, 12, 3e15)]
    assert summarise(other).by_time.inversions == summarise(other).by_rate.inversions == 0


def test_an_unknown_selector_is_an_error_of_the_study(tmp_path: Path) -> None:
    text = Path("config/studies/published/korthikanti-22b.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text(text.replace("when: {recompute: full}", "when: {recompoute: full}"))
    with pytest.raises(InvalidInput, match=r"recompoute.*did you mean.*recompute"):
        load_study(str(tmp_path / "wrong.yaml"))
    (tmp_path / "absent.yaml").write_text(text.replace("when: {recompute: full}", "when: {recompute: none}"))
    with pytest.raises(InvalidInput, match="'none' is not swept"):
        load_study(str(tmp_path / "absent.yaml"))


def results(folder: Path, status: str) -> Path:
    """A results table of a study of two points, and its design."""
    study = load_study("published/korthikanti-22b").model_dump(mode="json")
    (folder / "design").mkdir()
    (folder / "design/study.json").write_text(json.dumps({"study": study, "gpus": 8}))
    rows = []
    for mode, seconds in (("full", 1.491), ("selective", 1.045)):
        rate = {"tflops_per_gpu": 100.0, "mfu": 100 / 312, "iteration_time_s": seconds, "compute_s": seconds, "gpus": 8}
        rows.append(
            {"point_id": mode, "status": status, "reason": "E-WHY" * (status != "ok"), "recompute": mode, **rate}
        )
    write_csv(folder / "results.csv", rows, list(rows[0]))
    return folder / "results.csv"


def test_the_command_writes_table_text_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = results(tmp_path, "ok")
    files = [tmp_path / name for name in ("out.csv", "out.md", "out.svg", "out.png")]
    output, text, *figures = map(str, files)
    assert main(["published", str(table), "--output", output, "--markdown", text, "--figure", *figures]) == 0
    assert all(file.stat().st_size > 100 for file in files)
    shown = capsys.readouterr().out
    assert shown == files[1].read_text()
    assert "+5.0 %" in shown
    assert "-5.0 %" in shown
    assert "5.00 %" in shown


def test_rows_held_out_are_summed_up_apart() -> None:
    rows = [compared("a", 10, 11), replace(compared("b", 20, 21), held_out=True)]
    text = markdown(rows)
    assert "| **all but held out** | 1 | 10.00 %" in text
    assert "| **held out** | 1 | 5.00 %" in text
    assert [row["held_out"] for row in csv_rows(rows)] == ["false", "true"]


def test_the_tokens_of_a_step_follow_a_swept_batch_and_its_documents(tmp_path: Path) -> None:
    study = load_study("published/korthikanti-22b").model_dump(mode="json")
    study["published"] = [
        {"table": "T", "row": str(batch), "when": {"global_batch": batch}, "tflops_per_gpu": 100.0} for batch in (4, 8)
    ]
    rate = {"status": "ok", "reason": "", "tflops_per_gpu": 100.0, "mfu": 100 / 312, "iteration_time_s": 1.0, "gpus": 8}
    (tmp_path / "design").mkdir()
    times = []
    for document in (0.0, 256.0):
        study["training"]["document_length"] = document
        (tmp_path / "design/study.json").write_text(json.dumps({"study": study, "gpus": 8}))
        rows = [{"point_id": str(batch), "global_batch": batch, **rate} for batch in (4, 8)]
        write_csv(tmp_path / "results.csv", rows, list(rows[0]))
        times.append([row.published_s for row in compare([tmp_path / "results.csv"])])
    (one, two), (masked, _) = times
    assert two == pytest.approx(2 * one), "twice the sequences at the same rate"
    model = load_model("config/models/megatron-22b.yaml")
    assert masked / one == pytest.approx(training_flops(model, 256, 256) / training_flops(model, 2048, 2048) * 8)


def test_a_failed_point_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"E-PUBLISHED.*E-WHY"):
        compare([results(tmp_path, "crash")])


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    rows = [compared("a", 10, 11), compared("b", 20, 19)]
    for name in ("one.svg", "two.svg"):
        write_scatter(rows, [tmp_path / name])
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert set(csv_rows(rows)[0]) <= set(COLUMNS)
    assert markdown(rows).count("\n") == len(rows) + 9
