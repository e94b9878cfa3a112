"""For each analysis: its name in a heading, the question it answers, how to read its figure, and signs of trouble."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analyses.results import SWEEPING


@dataclass(frozen=True)
class Caption:
    """Attributes: read: what rows, colours, marks and bars are; trouble: what in the figure would be a bad sign."""

    title: str
    question: str
    read: str
    trouble: str


MARKS = "Green triangles and bands mark targets, a black diamond and a grey band a rule bit. "
CAPTIONS = {
    "samples": Caption(
        "Samples",
        "What do the inputs look like?",
        "One row a sample, one column a position; black is 1, white is 0. Green frames mark the targets of the rule in "
        "force. The column on the right is the label.",
        "Labels that are nearly all alike: a model that always gives the same answer would then look accurate.",
    ),
    "attention-patterns": Caption(
        "Attention patterns",
        "Where does attention look, for True and for False inputs?",
        "Left: one dot an input (blue False, orange True) is the attention that a key position gets, averaged over the "
        "queries; the black point and bar are mean and standard deviation over inputs. Right: the mean pattern, a row "
        "a query (dest), a column a key (src), brighter for more; each row sums to 1. " + MARKS,
        "Bright columns away from the targets. This alone proves nothing: how a row of the pattern counts depends on "
        "the readout, which the next section adds.",
    ),
    "effective-attention": Caption(
        "Effective attention",
        "With which weight does each value enter the logit, and on which side, key or query, is the selection made?",
        "Bars: effective attention, the sum over queries of readout times pattern; thin lines are 95 % bootstrap "
        "intervals over inputs. In the graph, wider edges weigh more; orange raises the logit, blue lowers it. On the "
        "right, above: the variance of the logit's terms summed by key (circles) and by query (squares). Below: what a "
        "flip of the bit changes through the query, through key and value, and only through both. " + MARKS,
        "Tall bars away from the targets, or targets that stand out only by query: then a heatmap of attention onto "
        "keys cannot show the selection.",
    ),
    "circuits": Caption(
        "Circuits",
        "What do the weights alone say: QK and OV tables, split exactly into position and token parts?",
        "Left: scores of every query (row) with every key (column), each position once with bit 0 and once with bit 1, "
        "targets first, each row's mean taken off; red is above it, blue below. Middle: the value of each key times "
        "the readout of each query, in logits. Then the readout, the share of each exact part in the tables' variance, "
        "and their singular values: a single large one means rank 1. " + MARKS,
        "Tables whose target rows or columns do not differ from the rest: then the selection is not in these weights.",
    ),
    "ablation": Caption(
        "Ablation",
        "What is lost when one position's activation at any hook is zeroed, replaced by its mean or resampled, or its "
        "key removed?",
        "One panel a hook point (and rule). The effect is the metric of the clean run less that of the ablated one, "
        "towards the right label, so positive means that the ablation hurts. Colour and shape give the kind of "
        "ablation; bars are 95 % bootstrap intervals over inputs. " + MARKS,
        "Effects away from the targets whose intervals exclude 0, or targets without effect.",
    ),
    "activation-patching": Caption(
        "Activation patching",
        "Which activations carry one target bit, or the rule bit, to the answer?",
        "One panel a direction and hook point; a row a bit that was changed between clean and corrupted input, a "
        "column the position that was patched. Red 1 means that this one activation recovers all of the difference "
        "(denoise) or loses all of it (noise); 0 is white. Non-targets are the control. " + MARKS,
        "Control rows that are not white, or rows without a red cell: then no single position carries that bit.",
    ),
    "attribution": Caption(
        "Attribution",
        "How far off are gradients as a stand-in for patching, and through q, k or v does a bit reach the logit?",
        "One panel a hook point: each dot is a position of a group of pairs, its exact effect by patching across, the "
        "estimate upwards (black circles: gradient, orange squares: integrated gradients). On the grey line both "
        "agree. The last panel, for attention models, splits each bit's effect by the paths through q, k and v, alone "
        "and only together.",
        "Dots far off the line: there gradients must not be taken for effects.",
    ),
    "target-recovery": Caption(
        "Target recovery",
        "Does the model use exactly the targets, do the methods agree, and what is the verdict?",
        "One panel a method, of several rules one column a rule; a bar is a position's score by that method, green for "
        "targets, and dots mark the positions ranked on top. p is the permutation test over all index sets "
        "of that size, before correction. " + MARKS,
        "Dots on grey bars under patching or weights. Under attention alone they are common also in models that are "
        "right.",
    ),
    "abstraction": Caption(
        "Causal abstraction",
        "Where does the task's causal model (rule, selected bits, AND) sit in the model, and is the rest irrelevant?",
        "Above: interchange accuracy of every variable (row) at whole sites and at single positions, red 1 where "
        "putting in the activation of another input changes the answer just as the causal model says, white at 0.5. "
        "Below, left: one learned direction, beside the same at initialisation and random ones, with 95 % intervals. "
        "Right: the share of the loss that causal scrubbing recovers under each hypothesis; 1 is all.",
        "A learned direction no better than random ones, or shuffled targets that recover as much as the true ones.",
    ),
    "formation": Caption(
        "Formation",
        "When, over the snapshots of a training, do attention, effective attention, ranking and accuracy lock on?",
        "One panel a measure over training steps. It locks on (orange line) when it stays within the grey band, ±10 % "
        "of its range about its final value; the thin line is chance. The first panel puts the steps in order.",
        "Measures that still move at the last step: the training had not settled.",
    ),
    "certificate": Caption(
        "Certificate",
        "Is the model right on every input; if not, on which is it wrong, and how near is that to a typical one?",
        "Above, if a wrong input was found: the one with the fewest changes and the worst one, dark where the bit is "
        "1. Below, where all inputs were counted: the share of wrong inputs by number of changes, on a logarithmic "
        "axis; the grey part is proven free of errors. " + MARKS,
        "Wrong inputs with few changes: such inputs come up in practice.",
    ),
    "variable-creation": Caption(
        "Claims",
        "Which claims of a hypothesis hold: which methods find exactly the indices that it names?",
        "One row a claim and method, a dot a rule: how well the scores separate the claimed indices from the others "
        "(AUROC, 1 is perfect, 0.5 chance). Colour and shape say whether the claim holds, fails or is undecided. Rings "
        "are the same model at initialisation.",
        "Dots no better than the rings: then training did not create what the claim says.",
    ),
}
"""In the words and order of the README's table of analyses."""

CLS = {
    "attention-patterns": {
        "read": "Above: the mean pattern of the [CLS] query, a row a head, a column a key; [CLS]'s own key is last. "
        "Below, for the heads that differ most between positions: one dot an input (blue False, orange True), the "
        "black point and bar mean and standard deviation over inputs. " + MARKS,
        "trouble": "Heads that look away from the targets, or evenly at everything.",
    },
    "circuits": {
        "read": "Above: the score of every key for the one query of each head (row), each position once with bit 0 and "
        "once with bit 1, targets first, each row's mean taken off; red is above it, blue below. Below: the same key's "
        "value times the direct readout, in logits. " + MARKS,
    },
}
"""What a [CLS] transformer's figures show otherwise."""
MAPS = (
    "One map a hook point, a cell for each {over}, all on one colour scale; red and blue are the two signs of the "
    "effect, white is none. "
)


def caption(name: str, result: dict[str, Any], architecture: str) -> Caption:
    """The words for this result's figure: of a [CLS] transformer, or of maps over heads or cells, they differ."""
    found = CAPTIONS[name]
    if architecture == "cls":
        found = replace(found, **CLS.get(name, {}))
    over: Sequence[str] = result.get("over", ["pos"])
    if name in SWEEPING and over != ["pos"]:
        found = replace(found, read=MAPS.format(over=" and ".join(over)) + MARKS)
    return found
