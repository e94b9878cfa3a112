"""Figures of the analyses: arrays in, a matplotlib Figure out, nothing computed and nothing left behind."""

from interp.plots.abstraction import plot_abstraction
from interp.plots.attention import plot_attention_patterns
from interp.plots.attribution import plot_attribution
from interp.plots.certificate import plot_certificate, plot_certificates
from interp.plots.circuits import plot_circuits, plot_query_circuits
from interp.plots.claims import plot_claims
from interp.plots.compare import Measure, plot_comparison
from interp.plots.effective import plot_effective_attention
from interp.plots.effects import plot_ablation, plot_patching
from interp.plots.formation import plot_formation, plot_order
from interp.plots.gain import plot_gain_attention
from interp.plots.maps import plot_maps
from interp.plots.names import name_last, name_positions
from interp.plots.query_attention import plot_query_attention
from interp.plots.recovery import plot_target_recovery
from interp.plots.sample_size import SampleSizes
from interp.plots.samples import plot_samples
from interp.plots.style import save_figure

__all__ = [
    "Measure",
    "SampleSizes",
    "name_last",
    "name_positions",
    "plot_ablation",
    "plot_abstraction",
    "plot_attention_patterns",
    "plot_attribution",
    "plot_certificate",
    "plot_certificates",
    "plot_circuits",
    "plot_claims",
    "plot_comparison",
    "plot_effective_attention",
    "plot_formation",
    "plot_gain_attention",
    "plot_maps",
    "plot_order",
    "plot_patching",
    "plot_query_attention",
    "plot_query_circuits",
    "plot_samples",
    "plot_target_recovery",
    "save_figure",
]
