"""What Snakemake needs before the DAG exists: the designed study as batches of jobs on disk.

``prepare`` enumerates and checks every point and writes ``results/<study>/design/``, unless nothing it depends on has
changed since last time. Files are rewritten only when their content changes, so an edit reruns the batches it touches
and no others.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, ScaleAcrossError, did_you_mean
from ..files import package_digest, short_hash, write_atomic
from .schema import STUDIES, study_path

INPUT_FOLDERS = ("config/models", "config/clusters", "config/accelerators", "templates")
SETTINGS: dict[str, Any] = {
    "study": "llama3-405b-2dc",
    "results": "results",
    "astra_configs": "astra_configs",
    "astra_sim": None,
    "batches": "auto",
    "overrides": [],
}
# Rooms whose code decides a step's output: its rule reruns when one of them changes, and only then.
PLAN_ROOMS = ("model", "cluster", "plan", "schedule", "trace")
STEP_CODE = {
    "design": (*PLAN_ROOMS, "astra", "study", "search.baselines"),
    "trace": (*PLAN_ROOMS, "study.traces", "cli.trace"),
    "render": ("cli.render",),
    "simulate": ("engine", "astra", "trace", "validate", "search.evaluate", "search.batch", "search.isolate"),
    "search": (*PLAN_ROOMS, "astra", "study", "engine", "validate", "search", "cli.search"),
    "aggregate": (
        "study.tables",
        "study.provenance",
        "study.outcomes",
        "study.expressions",
        "cluster.cost",
        "search.table",
        "search.outcomes",
        "report.columns",
        "cli.aggregate",
        "cli.columns",
    ),
    "thresholds": (
        *PLAN_ROOMS,
        "astra",
        "study",
        "engine",
        "search",
        "report.columns",
        "cli.thresholds",
        "cli.columns",
    ),
    "select": (
        *PLAN_ROOMS,
        "astra",
        "study",
        "engine",  # a certified study's interplay simulates the points that it goes through
        "search",
        "report.columns",
        "cli.select",
        "cli.columns",
    ),
    "report": (
        "report",
        "engine",
        "astra",
        "search.interplay",
        "search.timeline",
        "search.objective",
        "search.pareto",
        "search.select",
        "study.outcomes",
        "cli.report",
    ),
    "verdict": ("study.tables", "search.verdict", "cli.verdict"),
    "paper": ("study.tables", "search.paper", "cli.paper"),
    "published": ("study.tables", "study.published", "model", "published", "cli.published"),
}
PUBLISHED = "published"  # folder of studies whose points somebody measured
PAPER = "paper"  # folder of the studies of the paper's experiment
PLANS_A_BATCH = 16
MIN_BATCHES, MAX_BATCHES = 8, 256


@dataclass(frozen=True)
class Flow:
    """A designed study as the rules see it.

    Attributes:
        name: of the study, and of its folder under results.
        batches: three-digit numbers of the batches that have work.
        digests: step -> hash of the code it runs.
        configs: folder of its ASTRA-sim configurations.
        astra_sim_option: ``--astra-sim PATH`` for the binary, or nothing.
        folder: of its results. certified: whether a search finds its optimum instead of simulating every point.
    """

    name: str
    batches: tuple[str, ...]
    digests: Mapping[str, str]
    configs: str
    astra_sim_option: str = ""
    folder: str = ""
    certified: bool = False

    @property
    def points_file(self) -> str:
        """Table of the points that have a row in the results."""
        return f"{self.folder}/search/points.csv" if self.certified else f"{self.folder}/points.csv"

    @property
    def row_files(self) -> list[str]:
        """Result rows."""
        if self.certified:
            return [f"{self.folder}/search/rows.jsonl"]
        return [f"{self.folder}/runs/batch_{batch}.jsonl" for batch in self.batches]

    @property
    def certificate_files(self) -> list[str]:
        """The certificate of a search; nothing for an exhaustive study."""
        return [f"{self.folder}/certificate.yaml"] if self.certified else []


@dataclass(frozen=True)
class Settings:
    """``config/config.yaml``."""

    studies: tuple[str, ...]
    results: Path
    astra_configs: Path
    astra_sim: Path | None
    batches: int | None
    overrides: tuple[str, ...]


def read_settings(config: Mapping[str, Any]) -> Settings:
    """Settings from the mapping of ``config/config.yaml`` (and Snakemake's ``--config``).

    Raises:
        InvalidInput: E-CONFIG for an unknown key or a value of the wrong kind.
    """
    for key in config:
        if key not in SETTINGS:
            raise InvalidInput("E-CONFIG", f"config/config.yaml: unknown key {key!r}", did_you_mean(key, SETTINGS))
    values = {**SETTINGS, **config}
    studies = values["study"] if isinstance(values["study"], list) else [values["study"]]
    overrides = values["overrides"] if isinstance(values["overrides"], list) else [values["overrides"]]
    batches = values["batches"]
    if batches != "auto" and (not isinstance(batches, int) or not 1 <= batches <= 999):
        raise InvalidInput("E-CONFIG", f"batches is {batches!r}", "write auto or a number from 1 to 999")
    if not studies or not all(isinstance(study, str) and study for study in studies):
        raise InvalidInput("E-CONFIG", f"study is {values['study']!r}", "name a file of config/studies")
    binary = values["astra_sim"] or os.environ.get("ASTRA_SIM")
    return Settings(
        studies=tuple(studies),
        results=Path(values["results"]),
        astra_configs=Path(values["astra_configs"]),
        astra_sim=Path(binary) if binary else None,
        batches=None if batches == "auto" else batches,
        overrides=tuple(str(override) for override in overrides),
    )


def settings_from_file(
    path: Path, study: str | None = None, results: Path | None = None, overrides: Iterable[str] = ()
) -> Settings:
    """Settings from ``config/config.yaml`` for the commands, with what the command line changes.

    Raises:
        InvalidInput: E-CONFIG, or E-FILE / E-YAML for the file.
    """
    from ..schema import read_yaml

    config = dict(read_yaml(path) or {})
    if study is not None:
        config["study"] = study
    if results is not None:
        config["results"] = str(results)
    config["overrides"] = [*config.get("overrides", []), *overrides]
    return read_settings(config)


def prepare_all(config: Mapping[str, Any]) -> dict[str, Flow]:
    """Every study of the configuration, by name.

    Raises:
        ScaleAcrossError: whatever is wrong with a study or its inputs.
    """
    settings = read_settings(config)
    flows = [prepare(study, settings) for study in settings.studies]
    return {flow.name: flow for flow in flows}


class Flows(dict[str, Flow]):
    """The configuration's studies by name, and any published or paper one as soon as a rule asks for it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(prepare_all(config))
        self._config = dict(config)

    def __missing__(self, name: str) -> Flow:
        folder = next((folder for folder in (PUBLISHED, PAPER) if name in grouped_studies(folder)), None)
        if folder is None:
            raise KeyError(name)
        self[name] = prepare(f"{folder}/{name}", read_settings(self._config))
        return self[name]


def published_studies(studies: Path = STUDIES) -> list[str]:
    """Names of the studies of published runs."""
    return grouped_studies(PUBLISHED, studies)


def grouped_studies(folder: str, studies: Path = STUDIES) -> list[str]:
    """Names of the studies in a folder of config/studies."""
    return sorted(file.stem for file in (studies / folder).glob("*.yaml"))


def prepare_for_snakemake(config: Mapping[str, Any]) -> Flows:
    """``Flows`` with errors as Snakemake shows them: one line and no traceback."""
    from snakemake.exceptions import WorkflowError  # type: ignore[import-untyped]

    try:
        return Flows(config)
    except ScaleAcrossError as error:
        raise WorkflowError(str(error)) from None


def command_on_path() -> None:
    """Let the rules find ``scaleacross`` when Snakemake was started by its path, without activating its environment."""
    folder = str(Path(sys.executable).parent)
    search = os.environ.get("PATH", "").split(os.pathsep)
    if folder not in search:
        os.environ["PATH"] = os.pathsep.join([folder, *search])


def prepare(name: str, settings: Settings, studies: Path = STUDIES) -> Flow:
    """Design a study, unless its files and the code that designs are what they were; see the module's text."""
    key = design_key(study_path(name, studies), settings)
    for known in settings.results.glob("*/design/study.json"):
        content = _read_json(known)
        certified = content.get("study", {}).get("search") == "certified"
        if content.get("key") == key and (certified or _is_complete(known.parent, content["batches"])):
            return _flow(content, settings)
    from .write import design_study

    return _flow(design_study(name, settings, key, studies), settings)


def design_key(study: Path, settings: Settings) -> str:
    """Hash of everything that design depends on: study, overrides, models, clusters, templates, settings, code."""
    digest = hashlib.sha256()
    files = [file for folder in INPUT_FOLDERS for file in sorted(Path(folder).rglob("*")) if file.is_file()]
    for file in [study, *files]:
        digest.update(f"{file}\0".encode())
        digest.update(file.read_bytes())
    basis = [settings.batches, list(settings.overrides), str(settings.astra_configs), binary_digest(settings.astra_sim)]
    digest.update(json.dumps(basis).encode())
    digest.update(package_digest(*STEP_CODE["design"]).encode())
    return digest.hexdigest()[:16]


def astra_sim_binary(settings: Settings) -> Path:
    """The ASTRA-sim binary.

    Raises:
        InvalidInput: E-ASTRA-SIM when none is named, or what is named cannot be run.
    """
    binary = settings.astra_sim
    problem = "none is named" if binary is None else "" if binary.is_file() else f"there is no file {binary}"
    if binary is not None and not problem and not os.access(binary, os.X_OK):
        problem = f"{binary} is no program"
    if binary is None or problem:
        raise InvalidInput(
            "E-ASTRA-SIM",
            f"the ASTRA-sim analytical binary is needed, and {problem}",
            "set astra_sim in config/config.yaml or the variable ASTRA_SIM",
        )
    return binary


def binary_digest(binary: Path | None) -> str | None:
    """Hash of the simulator binary, or None without one (a missing file is an error only where it is used)."""
    if binary is None or not binary.is_file():
        return None
    return hashlib.sha256(binary.read_bytes()).hexdigest()[:12]


def batch_count(plans: int, wanted: int | None) -> int:
    """Batches a step is split into: as many as wanted, else enough for every core of this machine and for short jobs.

    A power of two, so that a study that grows a little keeps its batches. The number is settled when a study is
    designed; a cluster node that reads the design later does not count its own cores.
    """
    if wanted is not None:
        return wanted
    count = MIN_BATCHES
    while count < MAX_BATCHES and (count * PLANS_A_BATCH < plans or count < min(os.cpu_count() or 1, plans)):
        count *= 2
    return count


def batch_of(plan_id: str, count: int) -> str:
    """The batch of a plan, by a hash of its id: adding or removing other plans does not move it."""
    return f"{int(short_hash(plan_id, 8), 16) % count:03d}"


def write_json(path: Path, content: Any) -> None:
    """JSON, rewritten only when it changes."""
    write_atomic(path, json.dumps(content, indent=1) + "\n", only_if_changed=True)


def remove_stale(folder: Path, pattern: str, keep: Iterable[str]) -> None:
    """Remove batch files of a design that had more batches, or others."""
    kept = set(keep)
    for file in folder.glob(pattern):
        if file.name not in kept:
            file.unlink()


def _flow(content: Mapping[str, Any], settings: Settings) -> Flow:
    digests = {step: package_digest(*rooms) for step, rooms in STEP_CODE.items()}
    option = ""
    if content["study"]["simulator"] == "astra-sim":
        option = f"--astra-sim '{astra_sim_binary(settings)}'"
    name, certified = content["study"]["name"], content["study"]["search"] == "certified"
    folder = str(settings.results / name)
    return Flow(name, tuple(content["batches"]), digests, content["configs"], option, folder, certified)


def _is_complete(folder: Path, batches: Iterable[str]) -> bool:
    """Whether every file that the rules read is there (somebody may have removed some)."""
    files = [f"{kind}_{batch}.json" for batch in batches for kind in ("plans", "runs")]
    return all((folder / file).is_file() for file in ["configs.json", "../points.csv", *files])


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
