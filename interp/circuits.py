"""The QK and OV circuits of a one-layer attention model from its tables: centred, split into parts, their spectrum.

A head's QK table is its scores, (dest, vocab) × (src, vocab); its OV table is what a key's value adds to the logit for
each unit of pattern from a query, readout[dest] · value[src, vocab]. In both a constant a row can be taken away: the
softmax does not see it in a row of scores, and as a row of the pattern sums to 1, one in a row of OV only adds to the
logit's constant. So rows are centred over all 2T columns, whatever the inputs.

The parts are those of an analysis of variance with both bits weighted alike. 'Position' is the mean over a position's
two bits, 'token' the deviation from it: half of ±(W_E[1] − W_E[0]) through the head's weights. All that the bit does
not change belongs to the position: W_pos, the mean of W_E, and the biases b_Q, b_K and b_V. (Taking W_pos for the
position would make the parts depend on a constant that can be moved between W_E and W_pos without changing the model.)
After centring, b_K is gone: it adds the same to every key of a query. The parts add up to the centred table and are
orthogonal, so that their shares of its variance add up to 1.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Float
from torch import Tensor

from interp.tables import Tables

PARTS = ("position-position", "position-token", "token-position", "token-token")
"""The query's side first."""


@dataclass(frozen=True)
class Circuit:
    """One circuit of every head; OV's query has no vocab, as its readout depends on the position alone.

    Attributes:
        parts: in the order of PARTS; they add up to the centred table. QK: score units; OV: logit. Exactly 0 for a head
            whose rows are constant but for rounding.
        row_mean: what centring took from each row.
    """

    parts: Float[Tensor, "part head dest query_vocab src key_vocab"]
    row_mean: Float[Tensor, "head dest query_vocab"]

    @property
    def table(self) -> Float[Tensor, "head dest query_vocab src key_vocab"]:
        """The centred table."""
        return self.parts.sum(dim=0)

    @property
    def shares(self) -> Float[Tensor, "head part"]:
        """Each part's share of the centred table's variance, in [0, 1]; NaN where the table is constant in each row."""
        squares = reduce(self.parts.square(), "part head dest u src v -> head part", "sum")
        return squares / reduce(self.table.square(), "head dest u src v -> head 1", "sum")

    @property
    def singular_values(self) -> Float[Tensor, "head rank"]:
        """Of the centred table as a matrix [(dest, query_vocab), (src, key_vocab)], largest first."""
        return torch.linalg.svdvals(rearrange(self.table, "head dest u src v -> head (dest u) (src v)"))


def qk_circuit(tables: Tables) -> Circuit:
    """The QK circuit, exact; cost O(head · T²). Of a single query (a [CLS] token's), query_vocab is 1 long."""
    n_queries = tables.scores.shape[1]
    u = 1 if n_queries == 1 else 2
    return _split(rearrange(tables.scores, "head (dest u) (src v) -> head dest u src v", u=u, v=2))


def ov_circuit(tables: Tables) -> Circuit:
    """The OV circuit, summed over d_value, exact; query_vocab is 1 long, and the parts token-… are 0."""
    table = einsum(tables.readout, tables.value, "dest head d, head column d -> head dest column")
    return _split(rearrange(table, "head dest (src v) -> head dest 1 src v", v=2))


def _split(table: Float[Tensor, "head dest query_vocab src key_vocab"]) -> Circuit:
    row_mean = table.mean(dim=(-2, -1), keepdim=True)
    rounding = 2 * table.shape[3] * torch.finfo(table.dtype).eps * table.abs().amax(dim=(1, 2, 3, 4), keepdim=True)
    table = table - row_mean
    table = torch.where(table.abs().amax(dim=(1, 2, 3, 4), keepdim=True) > rounding, table, 0)
    of_position = table.mean(dim=-1, keepdim=True)  # the key's
    both = of_position.mean(dim=2, keepdim=True)
    position_token = table.mean(dim=2, keepdim=True) - both
    token_position = of_position - both
    token_token = table - both - position_token - token_position
    parts = [both, position_token, token_position, token_token]
    return Circuit(torch.stack([part.expand_as(table) for part in parts]), row_mean[..., 0, 0])


def numerical_rank(singular_values: Float[Tensor, "head rank"], size: int) -> list[int]:
    """How many are above rounding: largest · size · the precision's eps, as in numpy.linalg.matrix_rank.

    Args:
        singular_values: of each head, largest first.
        size: the longer side of the matrices.
    """
    limit = singular_values[:, :1] * size * torch.finfo(singular_values.dtype).eps
    return (singular_values > limit).sum(dim=1).tolist()


def effective_rank(singular_values: Float[Tensor, "head rank"]) -> Float[Tensor, " head"]:
    """exp of the entropy of the singular values over their sum (Roy and Vetterli 2007): 1 to rank; NaN if all are 0."""
    share = singular_values / singular_values.sum(dim=1, keepdim=True)
    return torch.special.entr(share).sum(dim=1).exp()
