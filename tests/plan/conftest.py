"""A small project of its own for tests of the command: a tiny model, cluster and study beside the real accelerators."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "config/config.yaml": "study: tiny",
    "config/models/tiny.yaml": """
name: tiny
layers: 8
hidden: 1024
heads: 16
kv_heads: 8
ffn: 4096
vocab: 32000
moe: {experts: 8, top_k: 2, ffn: 512}
""",
    "config/clusters/two.yaml.j2": """
name: two
accelerator: h100-sxm
tiers:
  - {name: node, size: 4, bandwidth: 400 GiB/s, latency: 2 us}
  - {name: building, size: 4, bandwidth: 400 Gbps, latency: 35 us}
  - {name: campus, size: 2, bandwidth: 400 Gbps, latency: 150 us, oversubscription: "{{ oversubscription }}"}
""",
    "config/studies/tiny.yaml": """
name: tiny
model: tiny
cluster: two
training: {sequence_length: 1024, global_batch: 32}
fixed: {tp: 4, ep: 2, dp_overlap: prefetch}
dimensions:
  order: [[tp, cp, pp, dp], [tp, cp, dp, pp]]
  pp: [2, 4]
  schedule: [1f1b, interleaved]
  chunks: [1, 2]
  dp_sharding: [zero1, hsdp]
environment:
  oversubscription: ["1:2", "1:8"]
constraints:
  - (schedule == 'interleaved') == (chunks > 1)
baselines:
  production: {order: [tp, cp, pp, dp], schedule: interleaved, dp_sharding: zero1}
  across: {order: [tp, cp, dp, pp], schedule: 1f1b}
  best: {best_of: [across, production]}
""",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the project, which is also the working directory."""
    for name in ("templates", "config/accelerators"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path
