"""Write ``results/<study>/report.html`` and the figures: one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import write_atomic
from . import figures as draw
from . import gantt_figure, heatmap, network
from .change import change_section
from .findings import Findings, StudyFacts, load_findings
from .gantt import Gantt
from .joint import joint_section
from .page import context, front_name
from .style import write_figure
from .words import column_words, name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Name of a figure, whether it can be drawn, why not, and how.
Picture = tuple[str, bool, str, "Callable[[], Figure]"]
TEMPLATES = Path(__file__).parents[3] / "templates"


def write_report(
    folder: Path | str,
    facts: StudyFacts,
    gantts: Sequence[Gantt] = (),
    output: Path | None = None,
    templates: Path = TEMPLATES,
    critical: Sequence[tuple[str, dict[str, float]]] = (),
) -> Path:
    """Read the tables of ``folder`` (``results/<study>``), write its ``report.html`` and ``figures/*.svg, *.png``.

    Args:
        folder: holds ``results.csv`` and, when there is a baseline, ``speedups.csv``.
        facts: what the tables do not say.
        gantts: the winner's step first, then those to see beside it; none when there is nothing to draw.
        output: the page, ``report.html`` in the folder unless given; figures go beside it.
        templates: holds ``report.html.j2``.
        critical: name of a design and the seconds of its critical path by kind of operator.

    Returns:
        The path of the report.

    Raises:
        InvalidInput: E-RESULTS when the table is missing or not ours, E-WRITE when the folder cannot be written.
    """
    import jinja2
    from markupsafe import Markup

    folder = Path(folder)
    output = output or folder / "report.html"
    findings = load_findings(folder, facts)
    drawn, missing = _draw(findings, [gantt for gantt in gantts if gantt.end > 0], output.parent / "figures")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = context(findings, {name: Markup(svg) for name, svg in drawn.items()}, missing)
    page["joint"] = joint_section(folder, findings.headline)
    page["change"] = change_section(folder)
    page["network"] = network.network_section(findings)
    page["critical"] = network.critical_section(critical)
    page["heatmap"] = [name_of(name) for name in heatmap.pair_of(findings, findings.effects()) or ()]
    write_atomic(output, environment.get_template("report.html.j2").render(page))
    return output


def _draw(findings: Findings, gantts: Sequence[Gantt], folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Draw what can be drawn: inline SVG by name, and for the others why not."""
    winner, pictures = findings.winner(), _pictures(findings, gantts)
    none = "No point is feasible, so there is nothing to draw."
    wanted = {name for name, *_ in pictures}
    for old in folder.glob("pareto*"):  # fronts that the study no longer has
        if old.stem not in wanted:
            old.unlink()
    drawn, missing = {}, {}
    for name, possible, why_not, figure in pictures:
        if winner is not None and possible:
            drawn[name] = write_figure(name, figure, folder)
        else:
            missing[name] = none if winner is None else why_not
            for suffix in ("svg", "png"):  # one of an earlier run would contradict the report
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    return drawn, missing


def _pictures(findings: Findings, gantts: Sequence[Gantt]) -> list[Picture]:
    """The figures in the order of the page."""
    winner, effects = findings.winner(), findings.effects()
    pair = heatmap.pair_of(findings, effects)
    best = 0.0 if winner is None else findings.objective.score(winner)
    return [
        (
            "speedups",
            bool(draw.speedup_items(findings)),
            "No feasible point matches a baseline, so there is no speedup to show.",
            lambda: draw.speedups(findings),
        ),
        (
            "breakdown",
            draw.parts_known(findings),
            "The simulator tells no parts of the time.",
            lambda: draw.breakdown(findings),
        ),
        *(
            (
                front_name(columns),
                len(columns) == 2 and bool(findings.known(columns)),
                _no_front(columns),
                partial(draw.pareto, findings, effects, columns[:2]),
            )
            for columns in findings.facts.fronts
        ),
        (
            "effects",
            bool(effects),
            "The study varies no dimension.",
            lambda: draw.effects(effects, best, findings.objective),
        ),
        (
            "network",
            network.busy_known(findings),
            "The simulator tells no use of links.",
            lambda: network.utilisation(findings),
        ),
        ("heatmap", pair is not None, "", lambda: heatmap.heat_map(findings, *(pair or ("", "")))),
        ("gantt", bool(gantts), "No timeline was kept of these points.", lambda: gantt_figure.whole(gantts)),
        ("gantt-detail", bool(gantts), "", lambda: gantt_figure.detail(gantts)),
    ]


def _no_front(columns: Sequence[str]) -> str:
    """Why a front is not drawn."""
    named = " against ".join(column_words(name)[0] for name in columns)
    return f"No point has both: {named}." if len(columns) == 2 else f"In pareto.csv, and not drawn: {named}."
