"""Accelerator files: read to SI units, refused with a reason."""

from pathlib import Path

import pytest
from scaleacross.cluster.accelerator import load_accelerator
from scaleacross.errors import InvalidInput
from scaleacross.units import GIB

GOOD = {
    "name": "x",
    "peak_flops": "{bf16: 100 TFLOPS}",
    "memory": "80 GiB",
    "reserved_memory": "4 GiB",
    "memory_bandwidth": "2 TB/s",
}


def write(folder: Path, **values: str | None) -> Path:
    path = folder / "x.yaml"
    entries = {key: value for key, value in {**GOOD, **values}.items() if value is not None}
    path.write_text("\n".join(f"{key}: {value}" for key, value in entries.items()))
    return path


def test_quantities_become_si(tmp_path: Path) -> None:
    accelerator = load_accelerator(write(tmp_path))
    assert accelerator.peak("bf16") == 1e14
    assert accelerator.memory_bandwidth == 2e12
    assert accelerator.usable_bytes == 76 * GIB


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"memry": "1 GiB"}, "did you mean 'memory'?"),
        ({"memory": None}, "'memory' is missing"),
        ({"memory": "80"}, "E-UNIT"),
        ({"peak_flops": "3"}, "E-ACCELERATOR"),
        ({"memory_bandwidth": "2 W"}, "E-UNIT"),
        ({"memory_bandwidth": "0 TB/s"}, "memory_bandwidth is 0 TB/s; write more than 0"),
        ({"peak_flops": "{bf16: -100 TFLOPS}"}, "peak_flops.bf16 is -100 TFLOPS"),
        ({"memory": "nan GiB"}, "E-UNIT"),
        ({"memory": "-80 GiB"}, "memory is -80 GiB"),
        ({"reserved_memory": "-4 GiB"}, "write 0 or more"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, values: dict[str, str | None], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        load_accelerator(write(tmp_path, **values))
    assert said in str(error.value)


def test_a_missing_file_suggests_a_near_one(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(InvalidInput, match=r"did you mean 'x'\?"):
        load_accelerator(tmp_path / "xx.yaml")
