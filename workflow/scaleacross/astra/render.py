"""Rendering of ASTRA-sim's configuration: a plan placed on a cluster to ``network.yml``, ``system.json``,
``memory.json`` and ``comm_groups.json``, in a folder that the ASTRA-sim binary takes as it is.

The templates see the design point's values, so a key that only a template knows is a dimension of a study. What they
render is read back and compared with what was meant: a mistake in a template is an error, never a wrong simulation.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cluster import Accelerator, Cluster, render, template_variables
from ..errors import Infeasible, InvalidInput
from ..files import short_hash, write_atomic
from ..schema import parse_yaml
from .algorithms.lowering import Implementations, implementations
from .config_files import load_groups, load_memory, load_network, load_system
from .dimensions import AstraDim, DimLike, astra_dimensions, simulated_tiers
from .settings import SETTING_NAMES, read_settings

NETWORK, SYSTEM, MEMORY, GROUPS = "network.yml", "system.json", "memory.json", "comm_groups.json"
CONFIG_FILES = (NETWORK, SYSTEM, MEMORY, GROUPS)
_READERS: Mapping[str, Callable[[Path], object]] = {
    NETWORK: load_network,
    SYSTEM: load_system,
    MEMORY: load_memory,
    GROUPS: load_groups,
}
_OWN_NAMES = frozenset({"dims", "tiers", "settings", "implementations", "endpoint_delay_ns", "peak_flops"})
_ROUNDING = 1e-6  # relative; a template may print fewer digits than a float has, not other numbers


def templates_folder() -> Path:
    """``templates`` of the working folder if it has ASTRA-sim's, else of the checkout this package lies in."""
    here = Path("templates")
    return here if (here / f"{NETWORK}.j2").is_file() else Path(__file__).parents[3] / "templates"


def config_variables(templates: Path | None = None) -> frozenset[str]:
    """Names of a design point that can change a rendered file: settings, and what the templates use of their own.

    The cluster file's variables come on top: :func:`scaleacross.cluster.template_variables`.
    """
    folder = templates or templates_folder()
    used = frozenset[str]().union(*(template_variables(folder / f"{name}.j2") for name in (NETWORK, SYSTEM, MEMORY)))
    return (used - _OWN_NAMES - {"cluster", "accelerator"}) | SETTING_NAMES


def render_config(
    dims: Sequence[DimLike],
    cluster: Cluster,
    accelerator: Accelerator,
    values: Mapping[str, Any],
    precision: str = "bf16",
    groups: Mapping[str, Sequence[int]] | None = None,
    templates: Path | None = None,
) -> dict[str, str]:
    """The text of each configuration file, by file name; ``comm_groups.json`` only where there are groups.

    Templates see ``dims`` (:class:`AstraDim`), ``tiers`` (:class:`SimulatedTier`), ``cluster``, ``accelerator``,
    ``settings``, ``implementations``,
    ``endpoint_delay_ns``, ``peak_flops`` and every value of the point (``cluster`` and ``accelerator`` are the objects,
    whatever the point says under these names), and the filters ``ns``, ``gib_per_s``, ``gb_per_s``, ``tflops``.

    Args:
        dims: placed dimensions, innermost first.
        cluster, accelerator: as loaded with the same point's values.
        values: the design point. Keys of :class:`Settings` choose collectives, chunks and so on.
        precision: of training; picks the accelerator's peak.
        groups: communicator id (a positive integer as text) -> ranks in ring order.
        templates: another folder of templates.

    Raises:
        InvalidInput: E-TIER, E-DIMS, E-VALUE, E-COLLECTIVE, E-PRECISION, E-NAME (a dimension named like one of the
            templates' own names), template errors of :func:`scaleacross.cluster.render`, E-TEMPLATE where a rendered
            file doesn't say what was meant.
        Infeasible: E-HALVING, E-COLLECTIVE for a collective that ASTRA-sim cannot be made to run on these dimensions;
            E-SITES where other axes than pp lie across sites of different size; E-WAN-SHARING where replicas have no
            pipeline messages to take turns with.
    """
    clash = sorted(_OWN_NAMES & values.keys())
    if clash:
        raise InvalidInput(
            "E-NAME", f"dimension '{clash[0]}' has a name that the templates use", "rename the dimension"
        )
    _check_sites(dims, cluster)
    columns = astra_dimensions(dims, cluster)
    settings = read_settings(values)
    if settings.wan_sharing == "temporal":
        _check_turns(dims, cluster)
    chosen = implementations(
        settings.collective,
        settings.all_to_all,
        settings.collective_optimization,
        columns,
        [tier.name for tier in cluster.tiers],
        communicators=bool(groups),
    )
    context = {
        **values,
        "cluster": cluster,
        "accelerator": accelerator,
        "dims": columns,
        "tiers": simulated_tiers(cluster),
        "settings": settings,
        "implementations": chosen,
        "endpoint_delay_ns": settings.endpoint_delay_ns,
        "peak_flops": accelerator.peak(precision),
    }
    folder = templates or templates_folder()
    files = {name: render(folder / f"{name}.j2", context) for name in (NETWORK, SYSTEM, MEMORY)}
    _check_network(_read_back(files, NETWORK, folder), columns, folder / f"{NETWORK}.j2")
    _check_system(_read_back(files, SYSTEM, folder), columns, context, folder / f"{SYSTEM}.j2")
    _read_back(files, MEMORY, folder)
    if groups:
        files[GROUPS] = _groups_text(groups)
    return files


def _check_sites(dims: Sequence[DimLike], cluster: Cluster) -> None:
    """Pipeline stages alone lie across sites of different size: a collective would need as many members on each."""
    across = sorted({dim.axis for dim in dims if dim.tier == cluster.tiers[-2].name}) if cluster.site_sizes else []
    if across not in ([], ["pp"]):
        sizes = ", ".join(f"{site.name} {site.used}" for site in cluster.sites)
        clash = f"{', '.join(across)} over {cluster.tiers[-2].name}s of sites of different size ({sizes})"
        fix = "put pp last in order and let it fill that tier, or write unequal_sites: smallest in the cluster"
        raise Infeasible("E-SITES", clash, fix)


def _check_turns(dims: Sequence[DimLike], cluster: Cluster) -> None:
    """Replicas take turns on the outermost tier where the pipeline alone lies across it, and there are several."""
    if cluster.site_sizes:
        clash = "wan_sharing temporal with sites of different size"
        raise Infeasible("E-WAN-SHARING", clash, "make wan_sharing fair, or write unequal_sites: smallest")
    outer = cluster.tiers[-1].name
    across = sorted({dim.axis for dim in dims if dim.tier == outer})
    if across != ["pp"]:
        clash = (
            f"wan_sharing temporal with {', '.join(across) or 'nothing'} across tier {outer}: messages of pp take turns"
        )
        raise Infeasible(
            "E-WAN-SHARING", clash, "put pp last in order and alone on that tier, or make wan_sharing fair"
        )
    if not any(dim.axis == "dp" for dim in dims):
        clash = "wan_sharing temporal with dp 1: there is nobody to take turns with"
        raise Infeasible("E-WAN-SHARING", clash, "raise dp, or make wan_sharing fair")


def write_config(folder: Path | str, files: Mapping[str, str]) -> None:
    """Write rendered files atomically; equal ones keep their time, and a file of an earlier rendering is removed.

    Raises:
        InvalidInput: E-WRITE; E-TEMPLATE where the strict readers of :mod:`scaleacross.astra.config_files` refuse a
        file (a
            mistyped key, say, which ASTRA-sim would ignore); nothing is written then.
    """
    folder = Path(folder)
    with tempfile.TemporaryDirectory(prefix="scaleacross-config-") as trial:
        for name, text in files.items():
            (Path(trial) / name).write_text(text, encoding="utf-8")
            try:
                _READERS[name](Path(trial) / name)
            except InvalidInput as error:
                raise _template_error(f"{name}.j2: {error.clash.removeprefix(trial + '/')} ({error.fix})") from None
    for name, text in files.items():
        write_atomic(folder / name, text, only_if_changed=True)
    for name in CONFIG_FILES:
        if name not in files:
            (folder / name).unlink(missing_ok=True)


def config_digest(files: Mapping[str, str], length: int = 12) -> str:
    """Hash of what the files say, not of how they are laid out: white space and comments don't change it."""
    content = {name: parse_yaml(text, name) if name == NETWORK else json.loads(text) for name, text in files.items()}
    return short_hash(content, length)


def _groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    lines = [
        f"  {json.dumps(str(name))}: {json.dumps([int(rank) for rank in ranks])}" for name, ranks in groups.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _read_back(files: Mapping[str, str], name: str, folder: Path) -> dict[str, Any]:
    template = folder / f"{name}.j2"
    try:
        content = parse_yaml(files[name], template) if name == NETWORK else json.loads(files[name])
    except InvalidInput as error:
        raise _template_error(error.clash) from None
    except json.JSONDecodeError as error:
        line = files[name].splitlines()[error.lineno - 1].strip() if files[name] else ""
        raise _template_error(f"{template}: rendered line {error.lineno} is no JSON ({error.msg}): `{line}`") from None
    if not isinstance(content, dict):
        raise _template_error(f"{template}: renders to {content!r:.40}, not to keys and values")
    return content


def _check_network(content: Mapping[str, Any], dims: Sequence[AstraDim], template: Path) -> None:
    for key, attribute in (
        ("topology", "topology"),
        ("npus_count", "size"),
        ("bandwidth", "bandwidth"),
        ("latency", "latency"),
    ):
        _compare(content.get(key), [getattr(dim, attribute) for dim in dims], key, template)


def _check_system(
    content: Mapping[str, Any], dims: Sequence[AstraDim], context: Mapping[str, Any], template: Path
) -> None:
    meant: Implementations = context["implementations"]
    for field, names in vars(meant).items():
        key = f"{field.replace('_', '-')}-implementation"
        given = content.get(key)
        if not isinstance(given, list) or len(given) != len(names):
            clash = f"{template}: {key} is {given!r}, which is not one entry for each of {len(names)} dimensions"
            raise _template_error(f"{clash} (ASTRA-sim drops the dimensions that a short list leaves out)")
        for number, (name, dim) in enumerate(zip(given, dims, strict=True)):
            halving = str(name).lower().endswith("halvingdoubling")
            if halving and (field == "all_to_all" or dim.size & (dim.size - 1)):
                raise _template_error(f"{template}: {key}[{number}] is {name} on {dim.size} NPUs; ASTRA-sim never ends")
    meant_numbers = {
        "local-mem-bw": context["accelerator"].memory_bandwidth / 1e9,
        "peak-perf": context["peak_flops"] / 1e12,
        "roofline-enabled": 1,
    }
    for key, number in meant_numbers.items():
        _compare([content.get(key)], [number], key, template)


def _compare(given: Any, meant: list[Any], key: str, template: Path) -> None:
    """E-TEMPLATE unless the rendered list says what was meant."""
    same = isinstance(given, list) and len(given) == len(meant) and all(map(_same, given, meant))
    if not same:
        shown = ", ".join(map(str, meant))
        raise _template_error(f"{template}: {key} is rendered as {given!r}, the cluster and plan say [{shown}]")


def _same(given: Any, meant: Any) -> bool:
    if isinstance(meant, str) or isinstance(given, bool) or not isinstance(given, int | float):
        return type(given) is type(meant) and given == meant
    return math.isclose(given, meant, rel_tol=_ROUNDING)


def _template_error(clash: str) -> InvalidInput:
    return InvalidInput("E-TEMPLATE", clash, "correct the template; the network itself is changed in config/clusters")
