"""The notebooks as they are committed: executed in order, asserting, and importing rather than defining.

That they still run is CI's to show (nbmake); what is checked here is what a reader sees without running anything.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("[0-9]_*.ipynb"))
MOST_BYTES, MOST_LINES, FEWEST_ASSERTIONS = 500_000, 5, 5
KNOWN = {
    *("analyses", "interp", "tasks"),
    *("einops", "ipywidgets", "matplotlib", "numpy", "pandas", "scipy", "torch", "transformer_lens"),
}
OUTSIDE = re.compile(r"(?<![\w.:/-])/(?:home|root|tmp|usr|var|opt|mnt|work|Users)/|\b[A-Z]:\\\\")
"""Absolute paths of some machine."""
WIDGETS, VIEW = "application/vnd.jupyter.widget-state+json", "application/vnd.jupyter.widget-view+json"

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]


def text(path: Path) -> str:
    """The prose of a notebook."""
    return "\n".join("".join(cell["source"]) for cell in read(path)["cells"] if cell["cell_type"] == "markdown")


def parsed(path: Path) -> list[ast.Module]:
    """The code of each cell, without lines that are for IPython."""
    sources = ["".join(cell["source"]) for cell in code_cells(path)]
    return [ast.parse(re.sub(r"^%.*$", "", source, flags=re.MULTILINE)) for source in sources]


def nodes(path: Path) -> Iterator[ast.AST]:
    for tree in parsed(path):
        yield from ast.walk(tree)


def test_every_cell_was_executed_once_in_order_without_errors_or_warnings(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert [output for output in outputs if output["output_type"] == "error"] == []
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_claims_are_asserted(path: Path) -> None:
    assertions = [node for node in nodes(path) if isinstance(node, ast.Assert)]
    assert len(assertions) >= FEWEST_ASSERTIONS
    constant = [ast.unparse(node) for node in assertions if not any(isinstance(n, ast.Name) for n in ast.walk(node))]
    assert constant == []


def test_packages_are_known_and_imported_at_the_top(path: Path) -> None:
    first, *others = parsed(path)
    late = [node.lineno for tree in others for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert late == []
    imported = set()
    for node in ast.walk(first):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names <= KNOWN
    assert {"analyses", "interp", "tasks"} & imported


def test_machinery_is_imported_not_defined(path: Path) -> None:
    for node in nodes(path):
        assert not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno + 1 <= MOST_LINES, node.name


def test_nothing_of_the_machine_that_ran_it_is_left(path: Path) -> None:
    notebook = read(path)
    for cell in notebook["cells"]:
        assert "execution" not in cell["metadata"]  # time stamps
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("image/png", None)
    assert OUTSIDE.findall(json.dumps(notebook)) == []


def test_it_is_small_and_runs_on_any_python_3(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    kernel = read(path)["metadata"]["kernelspec"]
    assert kernel == {"display_name": "Python 3", "language": "python", "name": "python3"}


def test_it_says_what_is_learned_what_to_try_and_what_it_is_based_on(path: Path) -> None:
    prose = text(path)
    assert prose.startswith("# ")
    for heading in ("What you will learn", "What to try", "References", "Neuromatch Academy"):
        assert heading in prose, heading
    assert re.search(r"Edelman|Vaswani", prose)


def test_links_to_other_notebooks_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(path))
    assert [link for link in links if not (path.parent / link).exists()] == []
    later = [other.name for other in NOTEBOOKS if other.name > path.name]
    assert not later or later[0] in links


def test_widgets_have_their_state(path: Path) -> None:
    """Each widget that a cell shows can be drawn without a kernel, and no state is left from an earlier run."""
    notebook = read(path)
    outputs = [output for cell in code_cells(path) for output in cell["outputs"]]
    shown = {output["data"][VIEW]["model_id"] for output in outputs if VIEW in output.get("data", {})}
    state = notebook["metadata"].get("widgets", {}).get(WIDGETS, {}).get("state", {})
    used, waiting = set(), list(shown)
    while waiting:
        model = waiting.pop()
        if model not in used:
            used.add(model)
            waiting += re.findall(r"IPY_MODEL_(\w+)", json.dumps(state[model]))
    assert used == state.keys()
