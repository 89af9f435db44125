"""A small project of its own for each test: the repository's flow with a tiny model, cluster and study."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
name: tiny
layers: 8
hidden: 1024
heads: 16
kv_heads: 8
ffn: 4096
vocab: 32000
"""

CLUSTER = """
name: tiny-2dc
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: building, size: 4, bandwidth: 400 Gbps, latency: 35 us}
  - name: campus
    size: 2
    bandwidth: 400 Gbps
    latency: {{ uplink_latency | default("150 us") }}
    loss: {{ uplink_loss | default(0) }}
    oversubscription: "{{ oversubscription }}"
"""

STUDY = """
name: tiny
model: tiny
cluster: tiny-2dc
training: {sequence_length: 1024, global_batch: 32}
fixed: {tp: 4}
dimensions:
  order: [[tp, cp, pp, dp], [tp, cp, dp, pp]]
  pp: [2, 4]
  schedule: [1f1b, interleaved]
  chunks: [1, 2]
  micro_batch: [1]
  collective: [ring, direct]
environment:
  oversubscription: ["1:2", "1:8"]
constraints:
  - (schedule == 'interleaved') == (chunks > 1)
baselines:
  production: {order: [tp, cp, pp, dp], schedule: interleaved, collective: ring}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small project, which is also the working directory."""
    for name in ("templates", "workflow/rules", "workflow/envs", "profiles", "config/accelerators"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    shutil.copy(ROOT / "workflow/Snakefile", tmp_path / "workflow")
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    files = {
        "config/config.yaml": yaml.safe_dump({**config, "study": "tiny", "batches": 2}),
        "config/models/tiny.yaml": MODEL,
        "config/clusters/tiny-2dc.yaml.j2": CLUSTER,
        "config/studies/tiny.yaml": STUDY,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ASTRA_SIM", raising=False)
    return tmp_path


@pytest.fixture
def edit(project: Path) -> Callable[[str, str, str], None]:
    """Replace a text that is there in one of the project's files."""

    def replace(name: str, old: str, new: str) -> None:
        text = (project / name).read_text()
        assert old in text, f"{old!r} is not in {name}"
        (project / name).write_text(text.replace(old, new))

    return replace
