"""Jinja2 templates with nothing silent: an undefined variable, a missing file or a bad line is one clear error.

Used for cluster files (``config/clusters/*.yaml.j2``) and for ASTRA-sim's inputs (``templates/*.j2``). Filters turn
quantities, given as text with a unit (``"150 us"``) or as SI numbers, into the units of ASTRA-sim's files:

``ns`` nanoseconds; ``gib_per_s`` GiB/s (2^30, network.yml); ``gb_per_s`` GB/s (1e9, local-mem-bw); ``tflops`` TFLOP/s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta

from ..errors import InvalidInput, did_you_mean
from ..schema import missing_file
from ..units import gib_per_second, nanoseconds, parse


def _filter(unit: str, convert: Callable[[float], float]) -> Callable[[str | float], float]:
    def apply(value: str | float) -> float:
        if isinstance(value, jinja2.Undefined):
            str(value)  # raises the error that names the variable
        return convert(parse(value, unit) if isinstance(value, str) else float(value))

    return apply


FILTERS: Mapping[str, Callable[[str | float], float]] = {
    "ns": _filter("second", nanoseconds),
    "gib_per_s": _filter("byte/second", gib_per_second),
    "gb_per_s": _filter("byte/second", lambda value: round(value / 1e9, 6)),
    "tflops": _filter("flop/second", lambda value: round(value / 1e12, 6)),
}


@cache
def _environment(folder: Path) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(FILTERS)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    return environment


def render(path: Path | str, context: Mapping[str, Any]) -> str:
    """Render the template file ``path`` with ``context`` (compiled once per process and file version).

    Raises:
        InvalidInput: E-FILE (no such template), E-TEMPLATE-SYNTAX, E-UNDEFINED (file, line, variable, did-you-mean),
            E-UNIT from a filter, with the template's name and line, E-TEMPLATE-SYNTAX for any other failing expression.
    """
    path = Path(path)
    template = _load(path)
    try:
        return template.render(context)
    except jinja2.TemplateError as error:
        raise _render_error(error, path, context) from None
    except InvalidInput as error:
        raise InvalidInput(error.error_id, f"{_place(error, path)}: {error.clash}", error.fix) from None
    except Exception as error:  # an expression in the template failed: that is the user's line, not our bug
        fix = "correct the expression"
        raise InvalidInput(
            "E-TEMPLATE-SYNTAX", f"{_place(error, path)}: {type(error).__name__}: {error}", fix
        ) from None


def template_variables(path: Path | str) -> frozenset[str]:
    """Names that the template (and those it includes) takes from outside: a dimension in none of them changes no file.

    Raises:
        InvalidInput: E-FILE or E-TEMPLATE-SYNTAX.
    """
    path = Path(path)
    environment = _environment(path.parent.resolve())
    found: set[str] = set()
    pending, seen = [path.name], set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        file = path.parent / name
        if not file.is_file():
            raise missing_file(file)
        try:
            tree = environment.parse(file.read_text(encoding="utf-8"), filename=str(file))
        except jinja2.TemplateSyntaxError as error:
            raise _syntax_error(error, file) from None
        found |= meta.find_undeclared_variables(tree)
        pending += [reference for reference in meta.find_referenced_templates(tree) if reference]
    return frozenset(found)


def _load(path: Path) -> jinja2.Template:
    environment = _environment(path.parent.resolve())
    try:
        return environment.get_template(path.name)
    except jinja2.TemplateSyntaxError as error:
        raise _syntax_error(error, path) from None
    except (jinja2.TemplateNotFound, OSError):
        raise missing_file(path) from None


def _syntax_error(error: jinja2.TemplateSyntaxError, path: Path) -> InvalidInput:
    file = Path(error.filename).name if error.filename else path.name
    fix = "correct the template"
    return InvalidInput("E-TEMPLATE-SYNTAX", f"{path.with_name(file)}, line {error.lineno}: {error.message}", fix)


def _render_error(error: jinja2.TemplateError, path: Path, context: Mapping[str, Any]) -> InvalidInput:
    if isinstance(error, jinja2.TemplateSyntaxError):  # in an included template
        return _syntax_error(error, path)
    if isinstance(error, jinja2.TemplateNotFound):
        return missing_file(path.with_name(str(error.name or "?")))
    message = error.message or str(error)
    if isinstance(error, jinja2.UndefinedError):
        attribute = re.search(r"has no attribute '([^']+)'", message)
        variable = re.search(r"'([^']+)' is undefined", message)
        if variable and not attribute:
            fix = f"{did_you_mean(variable[1], context)} or give it a default: {{{{ {variable[1]} | default(...) }}}}"
            return InvalidInput("E-UNDEFINED", f"{_place(error, path)}: variable '{variable[1]}' is undefined", fix)
        return InvalidInput("E-UNDEFINED", f"{_place(error, path)}: {message}", "correct the name")
    return InvalidInput("E-TEMPLATE-SYNTAX", f"{_place(error, path)}: {message}", "correct the template")


def _place(error: BaseException, path: Path) -> str:
    """File and line of the innermost template frame: Jinja rewrites tracebacks so that they point into templates."""
    folder, place, trace = path.parent.resolve(), str(path), error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.parent == folder:
            place = f"{path.with_name(file.name)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place
