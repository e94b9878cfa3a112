"""What a sweep of interventions is asked to do: which hooks, kinds, directions, metric and cells."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import numpy as np
from jaxtyping import Float

from interp.axes import HOOK_AXES, axis_of
from interp.effects import METRICS, Metric, Mode
from interp.errors import BoolensError
from interp.hooks import resolve_hooks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

S = TypeVar("S", bound=str)
MODES: tuple[Mode, ...] = get_args(Mode)
OVERS = (("pos",), ("head",), ("head", "pos"), ("head", "dest", "src"))
CELLS_AT_ONCE = 512
KIND_NAMES = {"remove-key": "remove key", "integrated": "integrated gradients"}
"""As one writes them on the command line."""


@dataclass(frozen=True)
class SweepOptions:
    """The options of ablation, activation-patching and attribution; what is empty takes the analysis' default.

    Attributes:
        hooks: full or last names of hook points.
        kinds: of ablation or attribution.
        modes: 'denoise', 'noise'.
        metric: 'logit', 'probability', 'loss' or 'accuracy'.
        over: the axes whose cells are swept; in scores and patterns 'pos' is dest, of removed keys it is src.
    """

    hooks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    metric: Metric = "logit"
    over: tuple[str, ...] = ("pos",)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise BoolensError(f"metric {self.metric!r} is not known; choose one of {', '.join(METRICS)}")
        if self.over not in OVERS:
            known = "; ".join(",".join(axes) for axes in OVERS)
            raise BoolensError(f"over {','.join(self.over)!r} is not known; choose one of {known}")

    def chosen(self, what: str, known: Sequence[S], default: Sequence[S] | None = None) -> tuple[S, ...]:
        """The kinds or modes asked for, in the order of `known`, or the default ones.

        Raises:
            BoolensError: one that is not known.
        """
        asked = getattr(self, what)
        for name in asked:
            if name not in known:
                raise BoolensError(f"{what[:-1]} {name!r} is not known; choose from {', '.join(known)}")
        return tuple(name for name in known if name in (asked or default or known))

    def hooks_of(self, names: Sequence[str], default: Iterable[str]) -> list[str]:
        """The hook points asked for, or the default ones, that have all the axes swept.

        Raises:
            BoolensError: no such hook point, one that was asked for without the axes, or none that has them.
        """
        asked = [_full_name(names, hook) for hook in dict.fromkeys(self.hooks)]
        for hook in asked:
            for axis in self.over:
                axis_of(hook, axis)
        fitting = asked or [hook for hook in default if has_axes(hook, self.over)]
        if not fitting:
            raise BoolensError(f"no hook point of this model has the axes {', '.join(self.over)}; choose another over")
        return fitting


def has_axes(hook: str, over: Sequence[str]) -> bool:
    axes = HOOK_AXES[hook]
    return all(axis in axes or (axis == "pos" and "dest" in axes) for axis in over)


def all_cells(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Room for the cells of hooks of these shapes: along each axis as many as the longest has."""
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


def place_of(shape: Sequence[int], cells: Sequence[int]) -> tuple[slice, ...]:
    """Where the cells of one hook belong in that room: the last ones, as the [CLS] token's position is the last."""
    return tuple(slice(room - size, room) for size, room in zip(shape, cells, strict=True))


def levelled(arrays: Sequence[np.ndarray], n_axes: int) -> list[np.ndarray]:
    """Arrays of one hook each, whose last axes are the cells, with the same room for all; NaN where a hook has none."""
    cells, levelled = all_cells(a.shape[a.ndim - n_axes :] for a in arrays), []
    for a in arrays:
        room = np.full((*a.shape[: a.ndim - n_axes], *cells), np.nan)
        room[(..., *place_of(a.shape[a.ndim - n_axes :], cells))] = a
        levelled.append(room)
    return levelled


def in_parts(
    estimate: Callable[[Float[np.ndarray, "batch cell"]], Sequence[np.ndarray]],
    values: Float[np.ndarray, "*cell batch"],
) -> list[Float[np.ndarray, "*cell"]]:
    """Estimates over inputs, such as a bootstrap's bounds, a few cells at a time, which bounds the memory."""
    shape = values.shape[:-1]
    flat = values.reshape(-1, values.shape[-1]).T
    parts = [estimate(flat[:, start : start + CELLS_AT_ONCE]) for start in range(0, flat.shape[1], CELLS_AT_ONCE)]
    return [np.concatenate(column).reshape(shape) for column in zip(*parts, strict=True)]


def sweep_options(given: dict[str, Any]) -> SweepOptions | None:
    """From the command line's options, lists separated by commas; None if none is given."""
    lists = {f"{name}s": _split(given.get(name)) for name in ("hook", "kind", "mode")}
    lists["kinds"] = tuple(KIND_NAMES.get(kind, kind) for kind in lists["kinds"])
    single = {"metric": given.get("metric"), "over": _split(given.get("over")) or None}
    asked = {name: value for name, value in {**lists, **single}.items() if value}
    return SweepOptions(**asked) if asked else None


def _split(value: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (value or "").split(",") if part.strip())


def _full_name(names: Sequence[str], hook: str) -> str:
    tails = [name for name in names if name.rsplit(".", 1)[-1] in (hook, f"hook_{hook}")]
    return tails[0] if len(tails) == 1 else resolve_hooks(names, hook)[0]


def plot_cells(
    cells: dict[tuple[str, int], Float[np.ndarray, "*cell"]],
    over: Sequence[str],
    label: str,
    targets: Sequence[Sequence[int]],
    rule_positions: Sequence[int],
) -> "Figure":
    """Maps of the cells that were swept, by title and rule; of the three axes of a pattern the head makes panels.

    Of heads alone each title is a row.
    """
    from interp.plots import plot_maps

    if len(over) == 1:
        by_rule = [[v for (_, r), v in cells.items() if r == rule] for rule in sorted({r for _, r in cells})]
        return plot_maps(
            np.array(by_rule), titles=[f"rule {r}" if len(by_rule) > 1 else "" for r in range(len(by_rule))],
            row="", column=over[0], label=label, targets=targets, rule_positions=rule_positions,
            row_names=list(dict.fromkeys(title for title, _ in cells)),
        )  # fmt: skip
    panels, titles, rules = [], [], []
    for (title, rule), values in cells.items():
        maps = values if values.ndim == 3 else values[None]
        for head, one in enumerate(maps):
            panels.append(one)
            of_head = f", head {head}" if len(maps) > 1 else ""
            titles.append(f"{title}{of_head}{f', rule {rule}' if len(targets) > 1 else ''}")
            rules.append(rule)
    return plot_maps(
        np.stack(panels), titles=titles, row=over[-2], column=over[-1], label=label, targets=targets,
        rule_positions=rule_positions, panel_rules=rules,
    )  # fmt: skip
