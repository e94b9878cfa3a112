"""Configurations: JSON both ways, nothing missing or unknown, nothing out of range, a stable identity."""

import dataclasses
import hashlib
import json
from typing import Any

import pytest

from interp.config import (
    MODEL_CONFIGS,
    AttentionConfig,
    Config,
    LinearConfig,
    MLPConfig,
    RunConfig,
    TrainConfig,
    digest,
)
from interp.errors import BoolensError

CONFIGS: list[Config] = [
    AttentionConfig(n_ctx=30),
    AttentionConfig(5, d_model=11, n_heads=3, d_head=7, d_value=2, positions="sinusoidal", bias=True, init_std=0.03),
    MLPConfig(30),
    MLPConfig(7, d_mlp=13, dropout=0, init_std=1),
    LinearConfig(1),
    LinearConfig(9, init_std=0.5),
    TrainConfig(),
    TrainConfig(7, 5, 3, 0.5, batch_size=7, log_every=2, snapshot_every=1),
]
RUN = RunConfig(AttentionConfig(30), TrainConfig(), 4, "trained", {"boolens": "0.1.0", "torch": "2.9"})
RUNS = [
    RUN,
    RunConfig(MLPConfig(11, dropout=0.25), TrainConfig(lr=0.001, batch_size=16), 0, "trained", {}),
    RunConfig(LinearConfig(3), None, 2**40, "imported:old.pt", {"torch": "2.6"}),
]


def through_json(content: Any) -> Any:
    return json.loads(json.dumps(content, allow_nan=False))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_round_trip(config: Config) -> None:
    again = type(config).from_dict(through_json(config.to_dict()))
    assert again == config
    assert again.to_dict() == config.to_dict()


def test_the_defaults_are_the_tutorial_s() -> None:
    assert AttentionConfig(30).to_dict() == {
        "n_ctx": 30,
        "d_model": 2,
        "n_heads": 1,
        "d_head": 2,  # 0 stands for d_model
        "d_value": 1,
        "positions": "learned",
        "bias": False,
        "init_std": 0.001,
    }
    assert MLPConfig(30).to_dict() == {"n_ctx": 30, "d_mlp": 512, "dropout": 0.1, "init_std": 0.02}
    assert AttentionConfig(30, d_model=5).d_head == 5
    assert AttentionConfig(30, d_model=5, d_head=3).d_head == 3


def test_every_architecture_has_its_name() -> None:
    assert MODEL_CONFIGS["attention"] is AttentionConfig
    assert MODEL_CONFIGS["mlp"] is MLPConfig
    assert MODEL_CONFIGS["linear"] is LinearConfig


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_missing_field_is_refused_also_one_with_a_default(config: Config) -> None:
    for field in dataclasses.fields(config):
        content = {k: v for k, v in config.to_dict().items() if k != field.name}
        with pytest.raises(BoolensError, match=rf"here: missing fields \['{field.name}'\], unknown fields \[\]; they "):
            type(config).from_dict(content, "here")


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_an_unknown_field_is_refused(config: Config) -> None:
    with pytest.raises(BoolensError, match=r"missing fields \[\], unknown fields \['d_modle'\]; they are \["):
        type(config).from_dict({**config.to_dict(), "d_modle": 3})


@pytest.mark.parametrize("content", [None, [], "attention", 3])
def test_only_an_object_is_a_configuration(content: Any) -> None:
    with pytest.raises(BoolensError, match=r"expected an object with fields \['init_std', 'n_ctx'\], found"):
        LinearConfig.from_dict(content)


WHOLE_FROM_1 = [
    *((AttentionConfig, field) for field in ("n_ctx", "d_model", "n_heads", "d_value")),
    *((MLPConfig, field) for field in ("n_ctx", "d_mlp")),
    (LinearConfig, "n_ctx"),
    *((TrainConfig, field) for field in ("n_train", "n_valid", "log_every")),
]
WHOLE_FROM_0 = [(AttentionConfig, "d_head"), *((TrainConfig, f) for f in ("steps", "batch_size", "snapshot_every"))]
POSITIVE = [(AttentionConfig, "init_std"), (MLPConfig, "init_std"), (LinearConfig, "init_std"), (TrainConfig, "lr")]
NOT_NUMBERS = [None, "3", [3], float("nan"), float("inf"), True]


def build(kind: type[Config], field: str, value: Any) -> Config:
    required = {} if kind is TrainConfig else {"n_ctx": 5}
    return kind(**{**required, field: value})


@pytest.mark.parametrize(("kind", "field"), WHOLE_FROM_1)
def test_whole_numbers_from_1(kind: type[Config], field: str) -> None:
    needs = rf"{field} is .*; it must be a whole number of at least 1"
    for value in [0, -1, 1.0, 2.5, *NOT_NUMBERS]:
        with pytest.raises(BoolensError, match=needs):
            build(kind, field, value)
    assert getattr(build(kind, field, 1), field) == 1


@pytest.mark.parametrize(("kind", "field"), WHOLE_FROM_0)
def test_whole_numbers_from_0(kind: type[Config], field: str) -> None:
    needs = rf"{field} is .*; it must be a whole number of at least 0"
    for value in [-1, 0.0, 2.5, *NOT_NUMBERS]:
        with pytest.raises(BoolensError, match=needs):
            build(kind, field, value)
    build(kind, field, 0)


@pytest.mark.parametrize(("kind", "field"), POSITIVE)
def test_positive_numbers(kind: type[Config], field: str) -> None:
    for value in [0, 0.0, -0.1, *NOT_NUMBERS]:
        with pytest.raises(BoolensError, match=rf"{field} is .*; it must be a number above 0"):
            build(kind, field, value)
    assert getattr(build(kind, field, 5e-324), field) == 5e-324


def test_dropout_is_from_0_to_below_1() -> None:
    for value in [-0.1, *NOT_NUMBERS]:
        with pytest.raises(BoolensError, match=r"dropout is .*; it must be a number of at least 0"):
            MLPConfig(5, dropout=value)
    for value in [1, 1.5]:
        with pytest.raises(BoolensError, match=rf"dropout is {float(value)}; it must be below 1"):
            MLPConfig(5, dropout=value)


def test_positions_and_bias() -> None:
    for value in ["rotary", "", None, 1, ["learned"]]:
        with pytest.raises(BoolensError, match=r"positions is .*; choose one of \('learned', 'sinusoidal'\)"):
            AttentionConfig(5, positions=value)
    for value in [0, 1, None, "true"]:
        with pytest.raises(BoolensError, match=r"bias is .*; it must be true or false"):
            AttentionConfig(5, bias=value)


def test_a_batch_is_at_most_the_training_set() -> None:
    assert TrainConfig(n_train=20, batch_size=20).batch_size == 20
    with pytest.raises(BoolensError, match="batch_size is 21, more than n_train = 20; 0 is the full batch"):
        TrainConfig(n_train=20, batch_size=21)


def test_configurations_are_frozen() -> None:
    for config in (*CONFIGS, RUN):
        field = dataclasses.fields(config)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field, 3)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_run_round_trip(run: RunConfig) -> None:
    again = RunConfig.from_dict(through_json(run.to_dict()))
    assert again == run
    assert again.to_dict() == run.to_dict()


def test_run_content_by_hand() -> None:
    assert RUNS[2].to_dict() == {
        "schema": 1,
        "model": {"architecture": "linear", "n_ctx": 3, "init_std": 0.02},
        "training": None,
        "seed": 2**40,
        "source": "imported:old.pt",
        "versions": {"torch": "2.6"},
    }


@pytest.mark.parametrize("field", ["schema", "model", "training", "seed", "source", "versions"])
def test_every_missing_run_field_is_refused(field: str) -> None:
    content = {k: v for k, v in RUN.to_dict().items() if k != field}
    with pytest.raises(BoolensError, match=r"here: needs exactly the fields \['model', 'schema', 'seed', .* found \["):
        RunConfig.from_dict(content, "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, r"needs exactly the fields .*'versions'\], found \['extra'"),
        ({"schema": 2}, r"schema 2 is not known; this version reads schema 1"),
        ({"schema": True}, r"schema True is not known"),
        ({"schema": 1.0}, r"schema 1.0 is not known"),
        ({"schema": "1"}, r"schema '1' is not known"),
        ({"seed": -1}, r"seed -1 must be a whole number of at least 0"),
        ({"seed": True}, r"seed True must be a whole number"),
        ({"seed": 1.0}, r"seed 1.0 must be a whole number"),
        ({"seed": None}, r"seed None must be a whole number"),
        ({"source": None}, r"source None must be text, 'trained' or 'imported:NAME'"),
        ({"versions": None}, r"versions None must be an object of texts"),
        ({"versions": {"torch": 2.9}}, r"versions \{'torch': 2.9\} must be an object of texts"),
        ({"model": None}, r"architecture None is not known; choose from \[.*'attention'.*'linear', 'mlp'\]"),
        ({"model": {"n_ctx": 3}}, r"architecture None is not known"),
        ({"model": {"architecture": "rnn", "n_ctx": 3}}, r"architecture 'rnn' is not known; choose from \["),
        ({"model": {"architecture": ["mlp"], "n_ctx": 3}}, r"architecture \['mlp'\] is not known"),
        ({"model": {"architecture": "linear", "n_ctx": 3}}, r"config.json: model: missing fields \['init_std'\]"),
        (
            {"model": {"architecture": "linear", "n_ctx": 3, "init_std": 0.1, "d_mlp": 5}},
            r"config.json: model: missing fields \[\], unknown fields \['d_mlp'\]",
        ),
        ({"model": {"architecture": "linear", "n_ctx": 0, "init_std": 0.1}}, r"n_ctx is 0; it must be"),
        ({"training": {}}, r"config.json: training: missing fields \['batch_size', 'log_every', "),
        ({"training": 3}, r"config.json: training: expected an object"),
        ({"training": {**TrainConfig().to_dict(), "betas": 1}}, r"training: .* unknown fields \['betas'\]"),
    ],
    ids=str,
)
def test_wrong_run_content_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BoolensError, match=message):
        RunConfig.from_dict({**RUN.to_dict(), **change})


@pytest.mark.parametrize("content", [None, [], "run"])
def test_only_an_object_is_a_run(content: Any) -> None:
    with pytest.raises(BoolensError, match=rf"found {type(content).__name__}"):
        RunConfig.from_dict(content)


def test_identity_is_everything_but_the_versions() -> None:
    other = dataclasses.replace(RUN, versions={"torch": "2.6"})
    assert other.identity == RUN.identity
    assert digest(other.identity) == digest(RUN.identity)
    changed = [
        dataclasses.replace(RUN, seed=5),
        dataclasses.replace(RUN, source="imported:x.pt"),
        dataclasses.replace(RUN, training=None),
        dataclasses.replace(RUN, training=TrainConfig(lr=0.02)),
        dataclasses.replace(RUN, model=AttentionConfig(31)),
        dataclasses.replace(RUN, model=LinearConfig(30)),
    ]
    assert len({digest(run.identity) for run in [RUN, *changed]}) == 7


def test_equal_configurations_have_one_identity() -> None:
    # a JSON file may say 1 where the code says 1.0
    assert TrainConfig(lr=1) == TrainConfig(lr=1.0)
    assert digest(TrainConfig(lr=1).to_dict()) == digest(TrainConfig(lr=1.0).to_dict())
    assert digest(MLPConfig(5, dropout=0).to_dict()) == digest(MLPConfig(5, dropout=0.0).to_dict())
    assert digest(AttentionConfig(5, d_head=0).to_dict()) == digest(AttentionConfig(5, d_head=2).to_dict())


def test_digest_is_sha256_of_the_canonical_text() -> None:
    text = rb'{"a":[1.5,null,"\u00e9"],"b":{"c":true,"d":1}}'
    wanted = hashlib.sha256(text).hexdigest()
    assert digest({"b": {"d": 1, "c": True}, "a": [1.5, None, "é"]}) == wanted
    assert digest({"a": (1.5, None, "é"), "b": {"c": True, "d": 1}}) == wanted
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest([float("nan")])
