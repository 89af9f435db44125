"""Constraint expressions of a study, evaluated on Python's syntax tree without ever calling ``eval``.

What is understood: names of the study, numbers, strings, lists, ``and or not``, comparisons and ``in``, arithmetic
(``+ - * / // %``), indexing of a list (``order[-1]``), ``a if b else c`` and the functions ``min max abs len``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInput, did_you_mean

_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "abs": abs, "len": len}
_ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.IfExp,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
    ast.Subscript,
    ast.Call,
    *_OPERATORS,
    *_UNARY,
)
_MAX_LENGTH = 500


@dataclass(frozen=True)
class Expression:
    """A checked expression: ``names`` it reads, ``evaluate(values)`` to its value."""

    text: str
    names: frozenset[str]
    _tree: ast.expr

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Value of the expression with the names of ``values``.

        Raises:
            InvalidInput: E-EXPRESSION for a name without a value, a division by zero or operands that clash.
        """
        try:
            return _evaluate(self._tree, values)
        except (TypeError, ZeroDivisionError, IndexError, KeyError, OverflowError, ValueError) as error:
            used = ", ".join(f"{name} = {values.get(name)!r}" for name in sorted(self.names))
            raise InvalidInput(
                "E-EXPRESSION", f"{self.text!r} cannot be evaluated with {used} ({error})", "mend the constraint"
            ) from None


def parse_expression(text: str, known_names: Iterable[str]) -> Expression:
    """Parse and check one expression.

    Raises:
        InvalidInput: E-EXPRESSION for bad syntax, a construct outside the list above, an unknown name (did you mean).
    """
    known = set(known_names)
    if not isinstance(text, str) or len(text) > _MAX_LENGTH:
        raise InvalidInput(
            "E-EXPRESSION", f"{str(text)[:60]!r} is not a constraint", f"write <= {_MAX_LENGTH} characters"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(
            "E-EXPRESSION", f"{text!r} is not an expression ({error})", "write for example pp <= 16"
        ) from None
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = set()
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InvalidInput(
                "E-EXPRESSION",
                f"{text!r} uses {type(node).__name__}, which constraints do not have",
                "use names, numbers, strings, lists, and/or/not, comparisons, arithmetic, min, max, abs, len",
            )
        if isinstance(node, ast.Call):
            _check_call(text, node)
        elif isinstance(node, ast.Name) and id(node) not in called:
            names.add(node.id)
    for name in sorted(names - known):
        raise InvalidInput("E-EXPRESSION", f"{text!r} uses the unknown name {name!r}", did_you_mean(name, known))
    if not names:
        raise InvalidInput(
            "E-EXPRESSION", f"{text!r} reads no key: it is always the same", "name a key in it, or remove it"
        )
    return Expression(text, frozenset(names), tree.body)


def _check_call(text: str, node: ast.Call) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS or node.keywords:
        name = ast.unparse(node.func)
        raise InvalidInput("E-EXPRESSION", f"{text!r} calls {name!r}", did_you_mean(name, _FUNCTIONS))


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Value of a node that ``parse_expression`` has checked."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.List() | ast.Tuple():
            return [_evaluate(item, values) for item in node.elts]
        case ast.BoolOp():
            is_and = isinstance(node.op, ast.And)
            result: Any = is_and
            for operand in node.values:
                result = _evaluate(operand, values)
                if bool(result) is not is_and:
                    return result
            return result
        case ast.UnaryOp():
            return _UNARY[type(node.op)](_evaluate(node.operand, values))
        case ast.BinOp():
            return _binary(node, values)
        case ast.Compare():
            return _compare(node, values)
        case ast.IfExp():
            return _evaluate(node.body if _evaluate(node.test, values) else node.orelse, values)
        case ast.Subscript():
            return _evaluate(node.value, values)[_evaluate(node.slice, values)]
        case ast.Call(func=ast.Name(id=name)):
            return _FUNCTIONS[name](*(_evaluate(argument, values) for argument in node.args))
    raise TypeError(f"{type(node).__name__} is not part of a constraint")


def _binary(node: ast.BinOp, values: Mapping[str, Any]) -> Any:
    """Arithmetic on numbers only, so that no expression can build a huge string or list."""
    left, right = _evaluate(node.left, values), _evaluate(node.right, values)
    for operand in (left, right):
        if not isinstance(operand, int | float):
            raise TypeError(f"{operand!r} is not a number")
    return _OPERATORS[type(node.op)](left, right)


def _compare(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _evaluate(node.left, values)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _evaluate(comparator, values)
        if not _OPERATORS[type(op)](left, right):
            return False
        left = right
    return True
