"""Axes, marks, files, and that nothing outside changes."""

import re
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from interp.plots import save_figure
from interp.plots.style import FALSE, RULE, TARGET, TRUE, mark_targets, position_axis, styled, tick_step

KINDS = ("samples", "attention", "effective", "ablation", "patching", "recovery", "abstraction", "gain", "circuits")


def test_importing_and_plotting_change_nothing_and_load_no_heavy_module(tmp_path: Path) -> None:
    code = f"""
import sys, matplotlib, numpy as np
def settings():
    return {{key: value for key, value in matplotlib.rcParams.copy().items() if key != "backend"}}
before, state = settings(), np.random.get_state()[1].tolist()
from interp.plots import plot_gain_attention, plot_samples, save_figure
assert settings() == before
assert not {{"torch", "seaborn", "transformer_lens", "matplotlib.pyplot"}} & set(sys.modules)
fig = plot_gain_attention(*np.ones((4, 3)), 1.0, z1=0, z2=0)
save_figure(fig, {str(tmp_path)!r})
plot_samples(np.eye(3, dtype=int), np.ones(3, bool), targets=[[1]]).draw_without_rendering()
assert settings() == before
assert np.random.get_state()[1].tolist() == state
assert not {{"torch", "transformer_lens"}} & set(sys.modules)
from matplotlib import pyplot, rcParams
assert not pyplot.get_fignums()
assert settings() == before
"""
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_styled_puts_settings_back_also_after_an_error() -> None:
    with mpl.rc_context({"svg.hashsalt": "other", "font.size": 31}):
        with styled():
            inside = mpl.rcParams["svg.hashsalt"], mpl.rcParams["font.size"]
        assert inside == ("boolens", 8)
        with pytest.raises(KeyError), styled():
            raise KeyError
        assert mpl.rcParams["svg.hashsalt"] == "other"
        assert mpl.rcParams["font.size"] == 31


def test_figures_do_not_depend_on_the_theme_outside(example: Callable[..., Figure], tmp_path: Path) -> None:
    plain = save_figure(example("samples", 5), tmp_path / "plain")
    with mpl.rc_context({"font.size": 20, "axes.facecolor": "red", "image.origin": "lower", "axes.grid": True}):
        themed = save_figure(example("samples", 5), tmp_path / "themed")
    assert plain[1].read_bytes() == themed[1].read_bytes()


@pytest.mark.parametrize("kind", ["attention", "patching", "recovery"])
def test_ticks_keep_their_size_when_drawn_under_another_theme(kind: str, example: Callable[..., Figure]) -> None:
    fig = example(kind, 5, 1, 1)
    with mpl.rc_context({"xtick.labelsize": 30, "ytick.labelsize": 30, "text.color": "red", "xtick.color": "red"}):
        fig.draw_without_rendering()
    ticks = [tick for axis in fig.findobj(Axis) if isinstance(axis, Axis) for tick in axis.get_major_ticks()]
    assert len(ticks) > 8
    assert {(tick.label1.get_fontsize(), tick.label2.get_fontsize(), tick.label1.get_color()) for tick in ticks} == {
        (7, 7, ".15")
    }


@pytest.mark.parametrize("n_ctx", [1, 2, 5, 11, 30, 100, 200])
@pytest.mark.parametrize("which", ["x", "y"])
def test_ticks_are_integers_inside_and_as_many_as_fit(n_ctx: int, which: str) -> None:
    fig = Figure(figsize=(3, 3), dpi=72)
    ax = fig.add_axes((0.1, 0.1, 0.8, 0.8))
    position_axis(ax, n_ctx, which)  # pyright: ignore[reportArgumentType]
    ticks = ax.get_xticks() if which == "x" else ax.get_yticks()
    limits = ax.get_xlim() if which == "x" else ax.get_ylim()
    assert limits == ((-0.5, n_ctx - 0.5) if which == "x" else (n_ctx - 0.5, -0.5))
    assert ticks[0] == 0
    assert set(ticks) <= set(range(n_ctx))
    assert len(set(np.diff(ticks))) <= 1
    assert len(ticks) == n_ctx if n_ctx <= 11 else len(ticks) >= 4


def test_tick_step_is_a_round_number() -> None:
    assert [tick_step(least) for least in (0.3, 1, 1.01, 2.5, 7, 11, 21, 51, 101)] == [1, 1, 2, 5, 10, 20, 50, 100, 200]


@pytest.mark.parametrize("which", ["x", "y"])
def test_marks_stand_at_the_targets(which: str) -> None:
    ax = Figure().add_subplot()
    position_axis(ax, 7, which)  # pyright: ignore[reportArgumentType]
    mark_targets(ax, [5, -5], [6], which)  # pyright: ignore[reportArgumentType]
    lines = {line.get_gid(): line for line in ax.lines}
    at = {gid: (line.get_xdata() if which == "x" else line.get_ydata()) for gid, line in lines.items()}
    assert np.asarray(at[f"targets-{which}"]).tolist() == [5, 2]
    assert np.asarray(at[f"rule_positions-{which}"]).tolist() == [6]
    assert lines[f"targets-{which}"].get_color() == TARGET
    assert lines[f"rule_positions-{which}"].get_color() == RULE
    bands = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    starts = [(band.get_x() if which == "x" else band.get_y(), to_hex(band.get_facecolor())) for band in bands]
    assert starts == [(4.5, TARGET.lower()), (1.5, TARGET.lower()), (5.5, RULE)]
    assert all((band.get_width() if which == "x" else band.get_height()) == 1 for band in bands)
    assert (ax.get_xlim() if which == "x" else ax.get_ylim()[::-1]) == (-0.5, 6.5)


def test_marks_out_of_range_are_refused() -> None:
    ax = Figure().add_subplot()
    position_axis(ax, 7)
    with pytest.raises(ValueError, match=r"targets holds 7, but positions run from 0 to 6; drop or correct it"):
        mark_targets(ax, [7])
    with pytest.raises(ValueError, match="rule_positions holds -8"):
        mark_targets(ax, [], [-8])
    with pytest.raises(ValueError, match=r"holds 2\.5, but positions are integers"):
        mark_targets(ax, [2.5])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match='which is \'z\', but an axis is "x" or "y"'):
        mark_targets(ax, [2], which="z")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="n_ctx is 0"):
        position_axis(ax, 0)


def test_colours_that_must_differ_do() -> None:
    assert len({FALSE, TRUE, TARGET, RULE}) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_svg_is_the_same_every_time_and_its_text_is_text(
    kind: str, example: Callable[..., Figure], tmp_path: Path
) -> None:
    fig = example(kind, 5, 1, 2)
    png, svg = save_figure(fig, tmp_path / "one")
    again = save_figure(example(kind, 5, 1, 2), tmp_path / "two" / "deeper", stem="other")
    assert (png, svg) == (tmp_path / "one" / "figure.png", tmp_path / "one" / "figure.svg")
    assert again[1].name == "other.svg"
    assert svg.read_bytes() == again[1].read_bytes()
    assert b"<dc:date>" not in svg.read_bytes()
    assert re.search(r"<text[^>]*>[a-z ]*position \(", svg.read_text(encoding="utf-8"))
    width, height = np.frombuffer(png.read_bytes()[16:24], ">u4")
    assert (width, height) == pytest.approx(fig.get_size_inches() * 200, abs=1)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    example: Callable[..., Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fig = example("gain", 5)
    before = {path.name: path.read_bytes() for path in save_figure(fig, tmp_path)}

    def half_written(_: FigureCanvasSVG, target: BytesIO, **__: object) -> None:
        target.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(FigureCanvasSVG, "print_svg", half_written)
    engine, dpi, canvas = fig.get_layout_engine(), fig.dpi, fig.canvas
    with pytest.raises(OSError, match="disk full"):
        save_figure(fig, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert (fig.get_layout_engine(), fig.dpi, fig.canvas) == (engine, dpi, canvas)


def test_save_refuses_a_stem_that_leaves_the_folder(example: Callable[..., Figure], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"stem is '\.\./up', but it names a file inside the folder"):
        save_figure(example("gain", 2), tmp_path, stem="../up")
