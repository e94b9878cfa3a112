"""Configurations: frozen, validated, JSON both ways, with unknown and missing fields refused."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, get_args

from interp.errors import BoolensError


@dataclass(frozen=True)
class Config:
    """Base of every configuration: `to_dict` and a strict `from_dict`."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: Any, source: str = "configuration") -> Self:
        """Rebuild from `to_dict`'s output.

        Raises:
            BoolensError: not an object, a missing or unknown field, or a value out of range.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(content, dict):
            raise BoolensError(f"{source}: expected an object with fields {sorted(names)}, found {content!r}")
        missing, unknown = sorted(names - content.keys()), sorted(content.keys() - names)
        if missing or unknown:
            raise BoolensError(
                f"{source}: missing fields {missing}, unknown fields {unknown}; they are {sorted(names)}"
            )
        return cls(**content)

    def _need(self, field: str, low: float, *, whole: bool = True, above: bool = False) -> None:
        value = getattr(self, field)
        kind_ok = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not kind_ok or not math.isfinite(value) or value < low or (above and value == low):
            what = "a whole number" if whole else "a number"
            raise BoolensError(f"{field} is {value!r}; it must be {what} {'above' if above else 'of at least'} {low}")
        if not whole:
            object.__setattr__(self, field, float(value))  # 1 and 1.0 are one configuration, so one digest

    def _need_share(self, field: str) -> None:
        self._need(field, 0, whole=False)
        if getattr(self, field) >= 1:
            raise BoolensError(f"{field} is {getattr(self, field)!r}; it must be below 1")


Positions = Literal["learned", "sinusoidal"]


@dataclass(frozen=True)
class AttentionConfig(Config):
    """One bidirectional attention layer read out linearly at all positions; the defaults are the tutorial's.

    Attributes:
        n_ctx: number of input positions T.
        d_model: width of token and position embeddings.
        n_heads: number of heads.
        d_head: width of queries and keys; 0 stands for d_model and is replaced by it. Scores are divided by its root.
        d_value: width of values.
        positions: learned embedding, or the fixed sinusoidal encoding (no parameters).
        bias: whether q, k, v and the logit have biases.
        init_std: standard deviation of the normal initialisation; biases start at 0.
    """

    n_ctx: int
    d_model: int = 2
    n_heads: int = 1
    d_head: int = 0
    d_value: int = 1
    positions: Positions = "learned"
    bias: bool = False
    init_std: float = 0.001

    architecture: ClassVar[str] = "attention"
    n_layers: ClassVar[int] = 1
    n_key_value_heads: ClassVar[None] = None
    device: ClassVar[str] = "cpu"

    def __post_init__(self) -> None:
        for field in ("n_ctx", "d_model", "n_heads", "d_value"):
            self._need(field, 1)
        self._need("d_head", 0)
        self._need("init_std", 0, whole=False, above=True)
        if self.positions not in get_args(Positions):
            raise BoolensError(f"positions is {self.positions!r}; choose one of {get_args(Positions)}")
        if not isinstance(self.bias, bool):
            raise BoolensError(f"bias is {self.bias!r}; it must be true or false")
        object.__setattr__(self, "d_head", self.d_head or self.d_model)


NORM_EPS = 1e-5
"""Added to the variance in a LayerNorm, as by torch."""


@dataclass(frozen=True)
class ClsConfig(Config):
    """One transformer block read out at a [CLS] token (Edelman et al. 2022); the defaults are a replication's.

    The [CLS] token stands after the bits, at position n_ctx, and is the third row of W_E.

    Attributes:
        n_ctx: number of input positions T, without the [CLS] token.
        d_model: width of the residual stream.
        n_heads: number of heads.
        d_head: width of queries, keys and values; 0 stands for d_model / n_heads and is replaced by it.
        d_mlp: hidden units (GELU) of the MLP; 0 is a block without one.
        norm: whether attention, MLP and readout see the residual stream through a LayerNorm each (pre-norm).
        bias: whether q, k, v, attention's output, the MLP and the logit have biases.
        dropout: share of the entries of the attention's and the MLP's output that is dropped in training.
        init_std: standard deviation of the normal initialisation; biases start at 0, the norms' weights at 1.
    """

    n_ctx: int
    d_model: int = 64
    n_heads: int = 16
    d_head: int = 0
    d_mlp: int = 64
    norm: bool = True
    bias: bool = True
    dropout: float = 0.1
    init_std: float = 0.02

    architecture: ClassVar[str] = "cls"
    n_layers: ClassVar[int] = 1
    n_key_value_heads: ClassVar[None] = None
    device: ClassVar[str] = "cpu"

    def __post_init__(self) -> None:
        for field in ("n_ctx", "d_model", "n_heads"):
            self._need(field, 1)
        for field in ("d_head", "d_mlp"):
            self._need(field, 0)
        if not self.d_head and self.d_model % self.n_heads:
            raise BoolensError(
                f"d_model is {self.d_model}, which {self.n_heads} heads do not divide; give d_head, or other numbers"
            )
        for field in ("norm", "bias"):
            if not isinstance(getattr(self, field), bool):
                raise BoolensError(f"{field} is {getattr(self, field)!r}; it must be true or false")
        self._need_share("dropout")
        self._need("init_std", 0, whole=False, above=True)
        object.__setattr__(self, "d_head", self.d_head or self.d_model // self.n_heads)


@dataclass(frozen=True)
class MLPConfig(Config):
    """The tutorial's MLP: n_ctx -> d_mlp (GELU, dropout) -> 1; 16,385 parameters at n_ctx = 30."""

    n_ctx: int
    d_mlp: int = 512
    dropout: float = 0.1
    init_std: float = 0.02

    architecture: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        self._need("n_ctx", 1)
        self._need("d_mlp", 1)
        self._need_share("dropout")
        self._need("init_std", 0, whole=False, above=True)


@dataclass(frozen=True)
class LinearConfig(Config):
    """One weight a bit and a bias: n_ctx + 1 parameters."""

    n_ctx: int
    init_std: float = 0.02

    architecture: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        self._need("n_ctx", 1)
        self._need("init_std", 0, whole=False, above=True)


ModelConfig = AttentionConfig | ClsConfig | MLPConfig | LinearConfig
MODEL_CONFIGS: dict[str, type[ModelConfig]] = {c.architecture: c for c in get_args(ModelConfig)}


@dataclass(frozen=True)
class TrainConfig(Config):
    """Adam on binary cross-entropy with logits.

    Attributes:
        n_train, n_valid: numbers of samples.
        steps: optimiser steps.
        lr: Adam's learning rate (betas 0.9, 0.999; eps 1e-8).
        weight_decay: times the weights is added to the gradient (torch.optim.Adam's, not AdamW's).
        batch_size: rows a step, drawn without replacement within an epoch; 0 is the full batch.
        log_every: steps between rows of the history; the first and the last step are always logged.
        snapshot_every: steps between weight snapshots (step 0 and the last included); 0 saves none.
        stop_loss, stop_accuracy, patience: a model is finished when, at a row of its history, the training loss is
            below stop_loss, the validation accuracy at least stop_accuracy, or the lowest validation loss `patience`
            rows old; 0 switches each off.
    """

    n_train: int = 200
    n_valid: int = 1000
    steps: int = 2000
    lr: float = 0.01
    weight_decay: float = 0.0
    batch_size: int = 0
    log_every: int = 20
    snapshot_every: int = 0
    stop_loss: float = 0.0
    stop_accuracy: float = 0.0
    patience: int = 0

    def __post_init__(self) -> None:
        for field in ("n_train", "n_valid", "log_every"):
            self._need(field, 1)
        for field in ("steps", "batch_size", "snapshot_every", "patience"):
            self._need(field, 0)
        for field in ("stop_loss", "stop_accuracy", "weight_decay"):
            self._need(field, 0, whole=False)
        if self.stop_accuracy > 1:
            raise BoolensError(f"stop_accuracy is {self.stop_accuracy}; an accuracy is at most 1")
        self._need("lr", 0, whole=False, above=True)
        if self.batch_size > self.n_train:
            raise BoolensError(
                f"batch_size is {self.batch_size}, more than n_train = {self.n_train}; 0 is the full batch"
            )


@dataclass(frozen=True)
class RunConfig:
    """config.json: what a run is. `training` is None for an imported checkpoint.

    Attributes:
        source: 'trained', 'certified' (trained until certified, see certified.json), or 'imported:NAME' with the
            original file's name.
        versions: versions of boolens and torch that made it; not part of the run's identity.
    """

    model: ModelConfig
    training: TrainConfig | None
    seed: int
    source: str
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "model": {"architecture": self.model.architecture, **self.model.to_dict()},
            "training": self.training and self.training.to_dict(),
            "seed": self.seed,
            "source": self.source,
            "versions": self.versions,
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything but the versions: two runs with equal identity and task compute the same thing."""
        return {k: v for k, v in self.to_dict().items() if k != "versions"}

    @classmethod
    def from_dict(cls, content: Any, source: str = "config.json") -> Self:
        """Strict inverse of `to_dict`.

        Raises:
            BoolensError: a missing or unknown field at any level, another schema or architecture.
        """
        names = {"schema", "model", "training", "seed", "source", "versions"}
        if not isinstance(content, dict) or content.keys() != names:
            found = sorted(content) if isinstance(content, dict) else type(content).__name__
            raise BoolensError(f"{source}: needs exactly the fields {sorted(names)}, found {found}")
        if type(content["schema"]) is not int or content["schema"] != 1:
            raise BoolensError(f"{source}: schema {content['schema']!r} is not known; this version reads schema 1")
        if isinstance(content["seed"], bool) or not isinstance(content["seed"], int) or content["seed"] < 0:
            raise BoolensError(f"{source}: seed {content['seed']!r} must be a whole number of at least 0")
        made_by, versions = content["source"], content["versions"]
        if not isinstance(made_by, str):
            raise BoolensError(f"{source}: source {made_by!r} must be text, 'trained' or 'imported:NAME'")
        if not isinstance(versions, dict) or not all(isinstance(v, str) for v in versions.values()):
            raise BoolensError(f"{source}: versions {versions!r} must be an object of texts by package name")
        model = content["model"]
        architecture = model.get("architecture") if isinstance(model, dict) else None
        if not isinstance(architecture, str) or architecture not in MODEL_CONFIGS:
            raise BoolensError(
                f"{source}: architecture {architecture!r} is not known; choose from {sorted(MODEL_CONFIGS)}"
            )
        fields = {k: v for k, v in model.items() if k != "architecture"}
        training = content["training"]
        return cls(
            model=MODEL_CONFIGS[architecture].from_dict(fields, f"{source}: model"),
            training=None if training is None else TrainConfig.from_dict(training, f"{source}: training"),
            seed=content["seed"],
            source=made_by,
            versions=versions,
        )


def digest(content: Any) -> str:
    """SHA-256 (hex) of a JSON-able value in canonical form; the identity of a run is that of its configuration."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
