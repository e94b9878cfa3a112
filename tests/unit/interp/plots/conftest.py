"""Figures of every kind with made-up numbers, and a watch over what they leave behind."""

from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from interp.plots import (
    Measure,
    SampleSizes,
    plot_ablation,
    plot_abstraction,
    plot_attention_patterns,
    plot_attribution,
    plot_certificate,
    plot_certificates,
    plot_circuits,
    plot_claims,
    plot_comparison,
    plot_effective_attention,
    plot_formation,
    plot_gain_attention,
    plot_maps,
    plot_order,
    plot_patching,
    plot_query_attention,
    plot_query_circuits,
    plot_samples,
    plot_target_recovery,
)
from interp.plots.complexity import Growth, plot_complexity


@pytest.fixture(autouse=True)
def settings_stay() -> Iterator[None]:
    """No test, and so no plot, changes matplotlib's settings."""

    def settings() -> dict[str, Any]:
        return {key: value for key, value in mpl.rcParams.copy().items() if key != "backend"}  # found out when asked

    before = settings()
    yield
    assert settings() == before


def make_example(kind: str, n_ctx: int, n_rules: int = 2, n_heads: int = 3) -> Figure:
    """A figure of this kind, with up to two targets a rule."""
    draw = np.random.default_rng(n_ctx)
    rule_positions = (n_ctx - 1,) if n_rules > 1 else ()
    targets = [[(3 * rule + i) % n_ctx for i in range(min(2, n_ctx))] for rule in range(n_rules)]
    n_samples = 23
    labels, rule = draw.random(n_samples) < 0.5, np.arange(n_samples) % n_rules
    values = draw.normal(size=(n_rules, n_heads, n_ctx))
    low, high = values - 0.2, values + 0.1
    heads = [f"head {head}" for head in range(n_heads)]
    match kind:
        case "samples":
            x = draw.integers(0, 2, (n_samples, n_ctx))
            return plot_samples(x, labels, targets=targets, rule_positions=rule_positions, rule=rule)
        case "attention":
            samples = draw.dirichlet(np.ones(n_ctx), (n_samples, n_heads))
            images = draw.dirichlet(np.ones(n_ctx), (n_rules, n_heads, n_ctx))
            mean, sd = images.mean(2), images.std(2)
            return plot_attention_patterns(
                samples, labels, rule, mean, sd, images, targets=targets, rule_positions=rule_positions
            )
        case "effective":
            return plot_effective_attention(
                values,
                low,
                high,
                values,
                by_src=low[:, 0],
                by_dest=high[:, 0],
                flips=values,
                sides=heads,
                channels=heads,
                targets=targets,
                rule_positions=rule_positions,
            )
        case "ablation":
            hooks = [f"blocks.0.attn.hook_{number}" for number in range(n_rules)]
            return plot_ablation(
                values, low, high, hooks=hooks, kinds=heads, targets=targets, rule_positions=rule_positions,
                panel_rules=range(n_rules) if n_rules > 1 else (),
            )  # fmt: skip
        case "patching":
            groups = [f"target {number}" for number in range(4)]
            return plot_patching(
                draw.normal(size=(2, n_heads, 4, n_ctx)), directions=["denoise", "noise"], hooks=heads, groups=groups,
                targets=targets, rule_positions=rule_positions,
            )  # fmt: skip
        case "certificate":
            shares = np.minimum(1, 10.0 ** np.linspace(-7, 1, n_ctx)) * (np.arange(n_ctx) > n_ctx // 3)
            return plot_certificate(
                draw.integers(0, 2, (2, n_ctx)), shares, rows=["fewest changes: logit +0.0112", "worst: logit +3.7"],
                change="zeros outside the targets", harmless=n_ctx // 3, targets=targets,
                rule_positions=rule_positions, n_ctx=n_ctx,
            )  # fmt: skip
        case "certificate, open":
            return plot_certificate(
                draw.integers(0, 2, (2, n_ctx)), np.zeros(0),
                rows=["fewest changes: logit +0.0112", "worst: logit +3.7"],
                change="ones outside the targets", harmless=n_ctx // 3, targets=targets, n_ctx=n_ctx,
            )  # fmt: skip
        case "certificates":
            upper = 10.0 ** draw.uniform(-9, -3, n_samples) * (np.arange(n_samples) > 4)
            verdicts = [["verified", "refuted", "undecided"][(i > 4) + (i > 15)] for i in range(n_samples)]
            return plot_certificates(
                draw.uniform(0.99, 1, n_samples), upper / 2, upper, draw.integers(-1, n_ctx, n_samples),
                verdicts=verdicts, change="zeros outside the targets",
            )  # fmt: skip
        case "circuits":
            shares = draw.dirichlet(np.ones(4), n_heads)
            return plot_circuits(
                draw.normal(size=(n_heads, n_ctx, 2, n_ctx, 2)), draw.normal(size=(n_heads, n_ctx, n_ctx, 2)),
                draw.normal(size=(n_ctx, n_heads, 2)), shares, shares, qk_singular_values=[[30.0, 2.5]] * n_heads,
                parts=["position-position", "position-token", "token-position", "token-token"],
                ov_singular_values=[[4.0]] * n_heads, targets=targets, rule_positions=rule_positions,
            )  # fmt: skip
        case "formation":
            steps, measures = [0, *range(20, 20 * n_ctx + 1, 20)], [f"measure-{i}" for i in range(n_heads + 4)]
            curves = draw.random((len(measures), len(steps))).cumsum(axis=1)
            at = np.array([np.nan, *draw.choice(steps, len(measures) - 1)])
            return plot_formation(steps, curves, curves[:, 0], at, measures=measures, band=0.1)
        case "order":
            steps, events = [0, *range(20, 20 * n_ctx + 1, 20)], [f"attention-on-targets-{i}" for i in range(8)]
            at = draw.choice(steps, (n_samples, len(events))).astype(float)
            counts = draw.integers(0, n_samples, (8, 8))
            return plot_order(at, counts, np.full((8, 8), n_samples), steps=steps, events=events)
        case "recovery":
            match, p_value = np.zeros((n_rules, n_heads), bool), np.full((n_rules, n_heads), 2.5e-5)
            return plot_target_recovery(
                values, methods=heads, top=[[[0]] * n_heads] * n_rules, match=match, p_value=p_value,
                targets=targets, rule_positions=rule_positions,
            )  # fmt: skip
        case "abstraction":
            n_variables = 2 + n_rules
            shares = draw.random((2, n_variables, 4))
            along = draw.random((2, n_variables - 1, 3))
            left = np.linspace(-3, 0.9, n_rules + 2)
            return plot_abstraction(
                shares, baselines=shares[0, :, :3].T, search=draw.random((4, n_variables, n_ctx)), alignment=along,
                alignment_low=along - 0.1, alignment_high=along + 0.05, recovered=left, recovered_low=left - 0.1,
                recovered_high=left + 0.1, accuracy=left / 20 + 0.9, sources=["any", "minimal"],
                variables=["rule", "and", "target 0", "target 1"][:n_variables], sites=["q", "k", "v", "hook_logit"],
                hooks=["hook_embed", "blocks.0.attn.hook_q", "blocks.0.attn.hook_v", "blocks.0.attn.hook_z"],
                aligned=["rule", "and", "target 0"][: n_variables - 1], aligned_hooks=["hook_embed", "hook_z"],
                directions=["learned", "learned at initialisation", "random"],
                hypotheses=[f"hypothesis {number}" for number in range(n_rules + 2)], targets=targets,
                rule_positions=rule_positions,
            )  # fmt: skip
        case "query attention":
            samples = draw.dirichlet(np.ones(n_ctx + 1), (n_samples, n_heads))
            mean = np.stack([samples[rule == r].mean(0) for r in range(n_rules)])
            return plot_query_attention(
                samples, labels, rule, mean, mean / 3, heads=range(min(n_heads, 2)), targets=targets,
                rule_positions=rule_positions,
            )  # fmt: skip
        case "query circuits":
            tables = draw.normal(size=(2, n_heads, n_ctx, 2))
            return plot_query_circuits(tables[0], tables[1], targets=targets, rule_positions=rule_positions)
        case "maps":
            titles = [f"blocks.0.attn.hook_pattern, zero, {head}" for head in heads]
            return plot_maps(
                draw.normal(size=(n_heads, n_ctx, n_ctx)), titles=titles, row="dest", column="src", targets=targets,
                label="effect, clean − ablated (logit)", rule_positions=rule_positions,
            )  # fmt: skip
        case "attribution":
            exact = draw.normal(size=(6, n_ctx))
            panels = ["hook_embed", *(f"blocks.0.attn.hook_{name}" for name in ("q", "k", "v", "pattern", "z"))]
            groups = [f"{what} (rule {r})" for r in range(n_rules) for what in ("target 3", "target 7", "rule bit 10")]
            return plot_attribution(
                exact, exact + 0.3 * draw.normal(size=(2, *exact.shape)), panels=panels, unit="logit",
                kinds=["gradient", "integrated gradients"], paths=draw.normal(size=(len(groups), 7)), groups=groups,
                routes=["q", "k", "v", "qk", "qv", "kv", "qkv"],
            )  # fmt: skip
        case "claims":
            auroc = draw.random((n_heads + 3, n_rules))
            claim, method = "the other rule's targets are on top", "effective-attention"
            status = [("holds", "fails", "undecided")[i % 3] for i in range(len(auroc))]
            return plot_claims(
                auroc, 1 - auroc, claims=[claim] * len(auroc), methods=[method] * len(auroc), status=status
            )
        case "comparison":
            n_train = [20, 50, 100, 200, 500, 1000]
            accuracy = 1 - draw.random((2, n_rules, 3, n_ctx)) ** 2 / 3
            share, balanced, loss = (
                Measure(v, v.mean(-1), v.mean(-1) - 0.02, v.mean(-1) + 0.01)
                for v in (accuracy, accuracy, draw.lognormal(-3, 2, accuracy.shape))
            )
            sizes = draw.choice(n_train, (3, n_ctx)).astype(float)
            middle = np.array([50, 200, np.inf])
            return plot_comparison(
                share, balanced, loss, draw.uniform(0.5, 0.55, (2, n_ctx)),
                densities=["sparse, s = 3", "dense, s = 15, balanced"],
                trainings=["100 steps", "2000 steps"][:n_rules], architectures=["attention", "mlp", "linear"],
                parameters=[104, 16_385, 31], n_train=1000, n_valid=1000,
                sample_sizes=SampleSizes(n_train, sizes, middle, middle / 2, middle * 1.5),
            )  # fmt: skip
        case "complexity":
            n = np.array([5, 10, 20, 30, 50, 100, 200, 500])
            laws = {"a + b log T, R² 0.98": lambda t: 9 + 8 * np.log(t), "a T^0.30, R² 0.95": lambda t: 9 * t**0.3}
            m_star = laws["a + b log T, R² 0.98"](n)
            names = ["attention, sparse-and s=3", "cls, rule-and s=2"][:n_rules]
            rule = "m*: the smallest of the sizes tried at which 9 of 10 seeds reach accuracy 0.99; floor: any learner."
            growths = [Growth(name, n.tolist(), m_star, m_star - 3, m_star + 9, m_star / 2, laws) for name in names]
            return plot_complexity(growths, {100: 50, 500: 80, 1000: 111}, rule)
        case "gain":
            weights = np.full(n_ctx, 1 / n_ctx)
            return plot_gain_attention(values[0, 0], low[0, 0], weights, high[0, 0], 0.5, z1=1, z2=2)
    raise ValueError(f"no example of {kind!r}")


@pytest.fixture
def example() -> Callable[..., Figure]:
    """See :func:`make_example`."""
    return make_example


@pytest.fixture
def seen_texts() -> Callable[[Figure], list[tuple[str, list[float]]]]:
    """Gives every text that is drawn, with its box (left, bottom, right, top) in pixels."""

    def find(fig: Figure) -> list[tuple[str, list[float]]]:
        canvas = FigureCanvasAgg(fig)
        fig.draw_without_rendering()
        unseen: set[int] = set()
        for ax in fig.axes:
            for axis in (ax.xaxis, ax.yaxis):
                low, high = sorted(axis.get_view_interval())
                for tick in axis.get_major_ticks():
                    if not (ax.axison and low <= tick.get_loc() <= high):
                        unseen |= {id(tick.label1), id(tick.label2)}
        found = []
        for text in fig.findobj(Text):
            if isinstance(text, Text) and text.get_visible() and text.get_text().strip() and id(text) not in unseen:
                found.append((text.get_text(), list(text.get_window_extent(canvas.get_renderer()).extents)))
        return found

    return find
