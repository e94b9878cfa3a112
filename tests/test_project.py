"""The project as a whole: imports one way, short files, complete packaging, README's commands."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from analyses.cli import app
from analyses.results import NAMES

ROOT = Path(__file__).parents[1]
PACKAGES = ("tasks", "interp", "analyses")
FOLDERS = (*PACKAGES, "tests")
MOST_LINES = 400


def python_files(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after running the code."""
    listing = f"{code}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    command = [sys.executable, "-c", listing]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=120)
    return set(done.stdout.split())


def test_sampling_plotting_and_statistics_do_not_import_transformer_lens() -> None:
    modules = modules_after("import interp.plots, interp.statistics, interp.seeds, interp.config, interp, tasks")
    assert {"interp", "tasks", "matplotlib", "scipy"} <= modules
    assert not {"transformer_lens", "analyses"} & modules


def test_no_file_is_too_long() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text("utf-8").splitlines()) for p in python_files(*FOLDERS)}
    assert {path: n for path, n in lengths.items() if n > MOST_LINES} == {}


def test_half_the_files_are_short() -> None:
    lengths = sorted(len(p.read_text(encoding="utf-8").splitlines()) for p in python_files(*PACKAGES))
    assert lengths[len(lengths) // 2] < 150


def test_every_analysis_has_a_module_that_runs_alone() -> None:
    for name in NAMES:
        path = ROOT / "analyses" / f"{name.replace('-', '_')}.py"
        source = path.read_text(encoding="utf-8")
        assert f'NAME = "{name}"' in source
        assert source.endswith("    from analyses.cli import analyze_as_module\n\n    analyze_as_module(NAME)\n")


def test_every_package_is_listed_for_the_wheel() -> None:
    """Build back ends skip a top-level `tasks` by default."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {str(p.parent.relative_to(ROOT)).replace("/", ".") for p in python_files(*PACKAGES)}
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(folders)
    assert all((ROOT / folder.replace(".", "/") / "__init__.py").exists() for folder in folders)


def test_the_readme_s_test_command_is_the_one_that_ci_runs() -> None:
    """.ci/run takes the first line of README.md that builds an environment and runs pytest; there is one."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    commands = [line for line in lines if line.startswith("python3 -m venv")]
    assert len([line for line in commands if "pytest" in line]) == 1
    assert len([line for line in commands if "boolens demo" in line]) == 1  # the main job
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "grep -m1 -E '^python3 -m venv .*pytest' README.md" in ci


def test_code_is_in_the_five_folders_only() -> None:
    built = {"build"}
    found = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".") and any(p.rglob("*.py"))}
    assert found - built <= {*FOLDERS, "notebooks"}


def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives a page's headings, code blocks left out."""
    outside = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", outside, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [p.name for p in sorted(ROOT.glob("*.md"))])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("http")]
    for link in links:
        path, _, anchor = link.partition("#")
        target = ROOT / (path or page)
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_command_is_in_the_readme_and_explained() -> None:
    functions = [(command.name, command.callback) for command in app.registered_commands]
    commands = {name or getattr(function, "__name__", "").replace("_", "-") for name, function in functions}
    assert {"demo", "report", "sample-complexity"} <= commands
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in commands:
        assert f"(COMMANDS.md#{command})" in readme, command
