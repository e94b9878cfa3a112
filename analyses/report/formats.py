"""Numbers and lists in words, the same way all over a page."""

import math
from collections.abc import Iterable
from typing import Any

MINUS = "\N{MINUS SIGN}"
DIGITS = 4
"""Significant digits of a number in a table."""


def number(value: Any, digits: int = DIGITS) -> str:
    """Significant digits without trailing zeros, thousands apart, a true minus sign; '–' where undefined.

    >>> number(0.000246305), number(1073741824), number(-12.3456789), number(None), number(1.0)
    ('0.0002463', '1,073,741,824', '−12.35', '–', '1')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    return f"{value:.{digits}g}".replace("-", MINUS)


def share(value: float | None) -> str:
    """An accuracy or AUROC, three decimals; never 1.000 or 0.000 for what is not.

    >>> share(0.9969), share(1.0), share(0.99997), share(None), share(0.00001)
    ('0.997', '1.000', '0.99997', '–', '1e−05')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value in (0, 1) or 0.0005 <= value < 0.9995:
        return f"{value:.3f}"
    if 0 < value < 0.0005:
        return number(value, 2)
    digits = next((n for n in range(4, 9) if float(f"{value:.{n}f}") < 1), 9)
    return f"{value:.{digits}f}"


def listed(words: Iterable[Any], last: str = "and") -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", 3])
    ('a', 'a and b', 'a, b and 3')
    """
    *before, end = [str(word) for word in words] or ["none"]
    return f"{', '.join(before)} {last} {end}" if before else end


def plural(n: int, word: str) -> str:
    """
    >>> plural(1, "head"), plural(16, "head"), plural(1073741824, "input")
    ('1 head', '16 heads', '1,073,741,824 inputs')
    """
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def capital(text: str) -> str:
    """
    >>> capital("[CLS] transformer"), capital("mLP and more"), capital("")
    ('[CLS] transformer', 'MLP and more', '')
    """
    return text[:1].upper() + text[1:]


FILTERS = {"number": number, "share": share, "listed": listed}
