"""Legends and the wording of titles."""

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path

from interp.plots.style import (
    CATEGORICAL,
    HATCHED,
    MARKERS,
    RULE,
    RULE_MARKER,
    STATUS,
    TARGET,
    TARGET_MARKER,
    TICK_SIZE,
)


def listed(targets: Sequence[int], most: int = 6) -> str:
    """ "targets 3, 7, 12", or how many when they are too many to read."""
    if not targets:
        return "no targets"
    if len(targets) > most:
        return f"{len(targets)} targets"
    return f"target{'s' if len(targets) > 1 else ''} {', '.join(map(str, sorted(targets)))}"


def rule_title(rule: int, targets: Sequence[Sequence[int]]) -> str:
    """The rule (where there are several) and its targets."""
    if len(targets) == 1:
        return listed(targets[0])
    return f"rule {rule}: {listed(targets[rule])}"


def all_targets(targets: Sequence[Sequence[int]]) -> list[int]:
    """The targets of every rule, for panels that show all rules at once."""
    return sorted({index for entry in targets for index in entry})


def target_handles(
    targets: Sequence[Sequence[int]], rule_positions: Sequence[int], spell_out: bool = False
) -> list[Artist]:
    """Legend entries for the marks of :func:`mark_targets`; `spell_out` names each rule's targets."""
    handles: list[Artist] = []
    if any(len(entry) for entry in targets):
        label = "target position"
        if spell_out:
            label = ("; " if len(targets) < 3 else "\n").join(rule_title(rule, targets) for rule in range(len(targets)))
        handles.append(dot(TARGET, TARGET_MARKER, label))
    if rule_positions:
        handles.append(dot(RULE, RULE_MARKER, "rule position"))
    return handles


def dot(colour: str, marker: str | Path, label: str, size: float = 5) -> Line2D:
    """A legend entry that is a marker alone."""
    return Line2D(
        [], [], color=colour, marker=marker, linestyle="none", markersize=size, markeredgewidth=0, label=label
    )


def kind_look(kind: int) -> tuple[str, str]:
    """Colour and marker; colours come round again with another marker."""
    return CATEGORICAL[kind % len(CATEGORICAL)], MARKERS[kind % len(MARKERS)]


def kind_handles(names: Sequence[str], lines: bool = True) -> list[Artist]:
    """Legend entries in the look of :func:`kind_look`; an empty name is left out."""
    handles: list[Artist] = []
    for k, name in enumerate(names):
        colour, marker = kind_look(k)
        look = {"color": colour, "marker": marker, "markersize": 4, "markeredgecolor": "0.2", "markeredgewidth": 0.3}
        if name:
            handles.append(Line2D([], [], linewidth=0.7, linestyle="-" if lines else "none", label=name, **look))
    return handles


def undefined_handle(label: str = "undefined (NaN)") -> Artist:
    """A legend entry for the hatching that is seen where a map has NaN."""
    look: dict[str, Any] = {**HATCHED, "linewidth": 0.4}
    return Patch(label=label, **look)


def interval_handle(label: str = "95 % interval") -> Artist:
    """A legend entry for the upright lines through markers and bars."""
    return Line2D([], [], color="0.35", marker="|", markersize=8, linestyle="none", markeredgewidth=0.9, label=label)


def status_handles(names: Sequence[str], found: Sequence[str]) -> list[Artist]:
    """Legend entries in the looks of STATUS for those of the three `names` that are `found`."""
    return [dot(*look, name) for look, name in zip(STATUS, names, strict=True) if name in found]


def figure_legend(fig: Figure, handles: Sequence[Artist]) -> None:
    """One legend above all panels, in as many columns as the figure's width takes."""
    if not handles:
        return
    longest = max(len(line) for handle in handles for line in str(handle.get_label()).split("\n"))
    column = TICK_SIZE * (0.58 * longest + 4.5)  # points: text, handle and gaps
    n_columns = max(1, min(len(handles), int(fig.get_figwidth() * 72 / column)))
    fig.legend(handles=list(handles), loc="outside upper center", ncols=n_columns, columnspacing=1.5)
