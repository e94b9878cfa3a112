"""What is computed: cells, their content address, and how one is computed."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from interp.config import digest
from interp.errors import BoolensError

Config = dict[str, Any]
Row = dict[str, Any]
Tell = Callable[[float, str], None]
"""Told the share in [0, 1] that is done, and what is going on."""
Compute = Callable[[Config, Tell | None], list[Row]]


@dataclass(frozen=True)
class Cell:
    """One configuration of one function.

    Attributes:
        compute: 'module:function'.
        config: JSON-able.
        schema: the function's module's SCHEMA, a whole number that is raised when rows of the same configuration come
            to differ. A release of this package alone does not make finished cells void.
        key: SHA-256 (hex) of the three.
    """

    compute: str
    config: Config
    schema: int
    key: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            key = digest(self.content)
        except (TypeError, ValueError) as error:
            raise BoolensError(f"cell {self.config!r} is not JSON ({error}); use finite numbers and texts") from None
        object.__setattr__(self, "key", key)

    @property
    def content(self) -> dict[str, Any]:
        return {"compute": self.compute, "config": self.config, "version": self.schema}


def find_compute(name: str) -> tuple[Compute, int]:
    """The function 'module:function' and its module's SCHEMA.

    Raises:
        BoolensError: no such module or function, or a module without SCHEMA.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
        function, schema = getattr(module, function_name), module.SCHEMA
    except (ImportError, AttributeError, ValueError) as error:
        raise BoolensError(f"{name!r} cannot be computed here ({error}); name 'module:function' with SCHEMA") from None
    return function, schema


def make_cells(compute: str, configs: Sequence[Config]) -> list[Cell]:
    """One cell a configuration, in order; what is asked for twice is there once.

    Raises:
        BoolensError: no configurations, no such function, or a configuration that is not JSON.
    """
    if not configs:
        raise BoolensError("the grid has 0 cells; give at least one value of each option")
    _, schema = find_compute(compute)
    cells = [Cell(compute, config, schema) for config in configs]
    return list({cell.key: cell for cell in cells}.values())


def compute_cell(cell: Cell, tell: Tell | None = None) -> list[Row]:
    """The cell's rows, all of the same columns.

    Raises:
        BoolensError: rows whose columns differ.
    """
    function, _ = find_compute(cell.compute)
    rows = function(cell.config, tell)
    for row in rows:
        if row.keys() != rows[0].keys():
            raise BoolensError(f"{cell.compute} gave rows of columns {sorted(rows[0])} and {sorted(row)}; give one set")
    return rows
