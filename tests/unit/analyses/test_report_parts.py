"""The pieces that pages are made of: static files, images, tables, words for architectures and tasks."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from jinja2 import UndefinedError
from PIL import Image

from analyses.report import images, render, tables
from analyses.report.captions import CAPTIONS, caption
from analyses.report.findings import Finding
from analyses.report.words import model_sentences, shown, task_sentences, title
from analyses.results import NAMES
from analyses.runs import Run
from interp.config import ClsConfig, LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.models import HookedCls, HookedLinear, HookedMLP
from tasks import Junta, Majority, Or, Parity, SparseAnd


def test_templates_escape_and_refuse_unknown_names() -> None:
    environment = render.environment()
    assert environment.autoescape is True
    made = environment.from_string("<p title='{{ x }}'>{{ x }}</p>").render(x="<b>'\"&")
    assert made == "<p title='&lt;b&gt;&#39;&#34;&amp;'>&lt;b&gt;&#39;&#34;&amp;</p>"
    with pytest.raises(UndefinedError, match="nothing"):
        environment.from_string("{{ nothing }}").render()
    for name in environment.list_templates():
        assert "|safe" not in (source := environment.loader.get_source(environment, name)[0]).replace(" ", "")  # pyright: ignore
        assert "autoescape" not in source


def test_only_static_files_are_inlined() -> None:
    assert "--accent" in render.static("page.css")
    for name in ("nothing.js", "../render.py", "", "a/b.css"):
        with pytest.raises(BoolensError, match="does not exist in analyses/report/static"):
            render.static(name)


def test_a_figure_keeps_its_pixels(tmp_path: Path) -> None:
    import base64
    import io

    pixels = np.random.default_rng(0).integers(0, 255, (30, 47, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert("RGBA").save(tmp_path / "figure.png")
    found = images.embed(tmp_path / "figure.png")
    kind, data = found.uri.split(",")
    assert kind == "data:image/webp;base64"
    assert (np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")) == pixels).all()
    assert (found.width, found.height) == (24, 15)
    (tmp_path / "figure.png").write_bytes(b"no image")
    with pytest.raises(BoolensError, match="is not an image"):
        images.embed(tmp_path / "figure.png")


def test_a_long_table_says_what_it_leaves_out(tmp_path: Path) -> None:
    rows = [f"{i},{(-1) ** i * i}" for i in range(301)]
    (tmp_path / "data.csv").write_text("\n".join(["cell,value", *rows]) + "\n")
    table = tables.data_table(Finding("circuits", tmp_path, "there", {}))
    assert [row[0].text for row in table.rows] == [str(i) for i in range(101, 301)]  # the largest, in the file's order
    assert (
        table.note
        == "Shown: the 200 with the largest size of value, of 301 rows. The whole table is the file data.csv."
    )
    table = tables.data_table(Finding("samples", tmp_path, "there", {}))
    assert [row[0].text for row in table.rows] == [str(i) for i in range(200)]
    (tmp_path / "data.csv").write_text(",".join(f"c{i}" for i in range(50)) + "\n")
    table = tables.data_table(Finding("samples", tmp_path, "there", {}))
    assert (len(table.columns), len(table.numeric), table.rows) == (40, 40, [])
    (tmp_path / "data.csv").unlink()
    with pytest.raises(BoolensError, match=r"data\.csv does not exist; make it again with"):
        tables.data_table(Finding("samples", tmp_path, "there", {}))


def test_every_analysis_has_its_words() -> None:
    assert CAPTIONS.keys() == set(NAMES)
    assert caption("circuits", {}, "cls").read != caption("circuits", {}, "attention").read
    over = caption("ablation", {"over": ["head", "pos"]}, "attention")
    assert over.read.startswith("One map a hook point, a cell for each head and pos")
    assert caption("ablation", {"over": ["pos"]}, "attention") == CAPTIONS["ablation"]


def test_runs_in_words(tmp_path: Path, write_run: Callable[..., Run]) -> None:
    generator, cls = torch.Generator().manual_seed(0), ClsConfig(n_ctx=7, d_model=6, n_heads=2, d_mlp=5)
    cases = [
        (HookedCls(cls, generator), SparseAnd(7, (1, 4)), "sparse-and, 2 of 7 bits, [CLS] transformer with 2 heads"),
        (HookedMLP(MLPConfig(n_ctx=8, d_mlp=3), generator), Or(8, (2, 5)), "or, 2 of 8 bits, MLP"),
        (HookedLinear(LinearConfig(n_ctx=6)), Majority(6, (0, 1, 3)), "majority, 3 of 6 bits, linear model"),
        (HookedLinear(LinearConfig(n_ctx=5)), Parity(5, (0, 4)), "parity, 2 of 5 bits, linear model"),
        (HookedLinear(LinearConfig(n_ctx=9)), Junta(9, (2, 8), "0110"), "junta, 2 of 9 bits, linear model"),
    ]  # fmt: skip
    for i, (model, task, words) in enumerate(cases):
        run = write_run(tmp_path / str(i), model.eval(), task, seed=i)
        assert title(run).lower() == f"{words}, seed {i}".lower()
        sentences = " ".join([*task_sentences(task), *model_sentences(run)])
        assert " and ".join(map(str, task.targets[0][-2:])) in sentences
        assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in sentences
        assert "Imported from by hand" in sentences


def test_paths_of_this_machine_are_not_told() -> None:
    assert shown(Path("/home/someone/runs/and")) == "and"
    assert shown(Path("/home/someone/runs/and/seed-000003")) == str(Path("and/seed-000003"))
    assert shown(Path("runs/and")) == str(Path("runs/and"))


def test_a_task_of_one_s_own_has_words_too() -> None:
    class AnyOf(Or):
        NAME: ClassVar[str] = "any-of"

    assert (
        task_sentences(AnyOf(7, (1, 4)))[0]
        == "The label is a function of the targets alone: positions 1 and 4 of 0 to 6."
    )
