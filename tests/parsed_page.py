"""An HTML page as a tree, parsed as a browser reads it; tests ask it for elements and their text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr", "input", "link", "line", "rect", "circle", "path"}


@dataclass
class Element:
    """Attributes: parts: texts and elements within, in order."""

    name: str
    attributes: dict[str, str]
    parts: list[str | Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text within, runs of white space as one blank."""
        return " ".join("".join(p if isinstance(p, str) else f" {p.text} " for p in self.parts).split())

    def all(self, name: str = "", **attributes: str) -> list[Element]:
        """Every element within of that name and with those attributes, in order."""
        found = []
        for part in self.parts:
            if isinstance(part, Element):
                wanted = {k.replace("_", "-").rstrip("-"): v for k, v in attributes.items()}
                if name in ("", part.name) and all(part.attributes.get(k) == v for k, v in wanted.items()):
                    found.append(part)
                found += part.all(name, **attributes)
        return found

    def one(self, name: str = "", **attributes: str) -> Element:
        """The only such element."""
        (found,) = self.all(name, **attributes)
        return found

    def rows(self) -> list[list[str]]:
        """Of a table: the text of each row's cells, the header first."""
        return [[cell.text for cell in row.all() if cell.name in ("th", "td")] for row in self.all("tr")]


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"{tag} has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].parts.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def parse_page(text: str) -> Element:
    """The page's tree; fails where elements are not closed in order."""
    builder = _Builder()
    builder.feed(text)
    builder.close()
    assert [element.name for element in builder.open] == ["page"], "elements that are never closed"
    return builder.root
