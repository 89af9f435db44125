"""The trace step when several processes want the same plan, write it and read it."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from scaleacross.engine import load_workload
from scaleacross.search.evaluate import Workloads
from scaleacross.study import traces
from scaleacross.study.design import Designer
from scaleacross.study.plans import parallelism_of
from scaleacross.study.points import enumerate_points
from scaleacross.study.schema import Study
from scaleacross.trace import plan_files

ROOT = Path(__file__).resolve().parents[2]
STUDY = Study.model_validate(
    {
        "name": "tiny",
        "model": "llama3-8b",
        "cluster": "scale-across",
        "training": {"sequence_length": 8192, "global_batch": 32},
        "fixed": {"tp": 8, "pp": 2, "building_zones": 1, "zone_nodes": 1},
        "dimensions": {"dp_sharding": ["zero1"]},
    }
)
ROUNDS = 12


@pytest.fixture(scope="module")
def content() -> Mapping[str, Any]:
    """A plan in its plain form."""
    designer, values = Designer(STUDY, ROOT), next(iter(enumerate_points(STUDY))).values
    setting = designer.setting(values)
    return designer.plan(setting, parallelism_of(values, setting.cluster.gpus)).content


def _writes(folder: Path, content: Mapping[str, Any], code: str, failed: Any) -> None:
    """Write the same plan again and again, as processes with this code do."""
    traces.package_digest = lambda *_: code  # type: ignore[assignment]
    try:
        for _ in range(ROUNDS):
            traces.write_traces(folder, content)
    except BaseException as error:
        failed.put(repr(error))
        raise


def _size(folder: Path) -> int:
    return sum(len(program) for program in load_workload(folder / "workload").programs)


@pytest.mark.parametrize("codes", [("one", "one"), ("one", "other")])
def test_two_writers_and_a_reader_never_meet_half_a_plan(
    codes: tuple[str, str], content: Mapping[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "traces/plan"
    traces.write_traces(folder, content)
    before, files = _size(folder), {file.name: file.read_bytes() for file in folder.glob("*.et")}
    context = multiprocessing.get_context("fork")
    failed = context.SimpleQueue()
    writers = [context.Process(target=_writes, args=(folder, content, code, failed)) for code in codes]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        assert sum(len(program) for program in Workloads()(str(folder / "workload")).programs) == before
        reads += 1
    for writer in writers:
        writer.join()
    assert failed.empty() and [writer.exitcode for writer in writers] == [0, 0]
    assert reads
    assert {file.name: file.read_bytes() for file in folder.glob("*.et")} == files
    assert sorted(file.name for file in folder.parent.rglob("*") if file.parent != folder) == [".lock", ".plan", "plan"]


def test_what_is_there_is_kept_and_an_incomplete_folder_is_replaced(content: Mapping[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    record = traces.write_traces(folder, content)
    place = folder.stat().st_ino
    assert traces.write_traces(folder, content).kept and folder.stat().st_ino == place
    (folder / "workload.c0.et").unlink()
    again = traces.write_traces(folder, content)
    assert not again.kept and again == record and (folder / "workload.c0.et").is_file()


def test_a_replaced_folder_is_read_anew_and_what_is_kept_is_bounded(content: Mapping[str, Any], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        traces.write_traces(folder, content)
    prefixes = [str(folder / "workload") for folder in folders]
    size = sum(file.stat().st_size for file in folders[0].glob("*.et"))
    several, single = Workloads(2 * size), Workloads(size)
    first = several(prefixes[0])
    several(prefixes[1])
    assert several(prefixes[0]) is first
    (folders[0] / "workload.c0.et").unlink()
    traces.write_traces(folders[0], content)
    assert several(prefixes[0]) is not first
    alone = single(prefixes[0])
    single(prefixes[1])
    assert single(prefixes[0]) is not alone


def test_a_plan_is_written_once_and_never_taken_away(
    content: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, calls, real = threading.Event(), [], plan_files.write_plan

    def slow(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            both.set()
        both.wait(0.5)  # the time for another to come in
        return real(*arguments)

    monkeypatch.setattr(plan_files, "write_plan", slow)
    with ThreadPoolExecutor(2) as pool:
        records = list(pool.map(lambda _: traces.write_traces(tmp_path / "plan", content), range(2)))
    assert len(calls) == 1
    assert sorted(record.kept for record in records) == [False, True]
    assert load_workload(tmp_path / "plan" / "workload") is not None
