"""Numbers and rank sets as short text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def count(value: int) -> str:
    """``16,384``."""
    return f"{value:,}"


def scaled(value: float, unit: str) -> str:
    """``19.2 GB``: three digits and a decimal prefix; ``-`` for nothing."""
    if value == 0:
        return "-"
    size, prefix = next(((size, prefix) for size, prefix in _UNITS if value >= size), (1.0, ""))
    number = value / size
    return f"{number:.{0 if number >= 100 else 1 if number >= 10 else 2}f} {prefix}{unit}"


def runs(numbers: Iterable[int], most: int = 3) -> str:
    """Ascending numbers as runs, a constant step said once: ``0-7``, ``0-7, 128-135, ... 16256-16263``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in found]
    return ", ".join(texts) if len(texts) <= most else f"{', '.join(texts[: most - 1])}, ... {texts[-1]}"


def sequence(numbers: Sequence[int], most: int = 5) -> str:
    """Numbers in their own order: ``0 8 16 ... 120``."""
    if len(numbers) <= most:
        return " ".join(map(str, numbers))
    return f"{' '.join(map(str, numbers[: most - 1]))} ... {numbers[-1]}"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = (), indent: str = "  "
) -> list[str]:
    """Lines of a table with columns as wide as they need; columns in ``right`` are aligned to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    aligned = set(right)
    return [
        (
            indent
            + "  ".join(
                cell.rjust(width) if column in aligned else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        ).rstrip()
        for row in cells
    ]
