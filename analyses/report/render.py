"""The templates' environment: everything is escaped but the package's own style sheets and scripts."""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analyses.report.formats import FILTERS
from interp.errors import BoolensError


@cache
def environment() -> Environment:
    """Autoescape on for every template, names that are not given raise, blocks leave no blank lines."""
    made = Environment(
        loader=PackageLoader("analyses.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["static"] = static
    made.filters.update(FILTERS)
    return made


def static(name: str) -> Markup:
    """A file of static/, for a <style> or <script> element.

    Raises:
        BoolensError: no such file, or one that would end the element early.
    """
    path = files("analyses.report") / "static" / name
    if not name or "/" in name or "\\" in name or not path.is_file():
        raise BoolensError(f"static file {name!r} does not exist in analyses/report/static")
    text = path.read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise BoolensError(f"static file {name!r} closes its own element; split the tag in two texts")
    return Markup(text)


def render(template: str, **values: Any) -> bytes:
    """A page in UTF-8."""
    return environment().get_template(template).render(**values).encode()
