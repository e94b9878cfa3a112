"""The tutorial's own checkpoints: what its code computed is reproduced, and nothing but weights is ever loaded."""

import io
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from interp.checkpoint import TUTORIAL_NAMES, import_tutorial
from interp.errors import BoolensError
from interp.hooks import run
from tasks import RuleAnd, SparseAnd, Task

DATA = Path(__file__).parents[2] / "data" / "tutorial"
TASKS: dict[str, Task] = {
    "rule_and_T11_s2_seed1": RuleAnd(11, ((3, 9), (4, 6)), p="tutorial"),
    "sparse_and_T30_s3_seed0": SparseAnd(30, (12, 24, 27), p="tutorial"),
}
"""The two checkpoints kept with the tests, whose stored inputs are fewer than the originals'."""
RULE_FILE = DATA / "rule_and_T11_s2_seed1.pt"


def check_reproduced(path: Path, task: Task) -> None:
    """Compare with what the tutorial's code computed; scores, pattern and z are stored for the first few inputs."""
    stored = np.load(path.with_suffix(".npz"))
    x = torch.tensor(stored["x"]).long()
    model = import_tutorial(path)
    assert not model.training
    assert sum(p.numel() for p in model.parameters()) == {30: 104, 11: 47}[task.n_ctx]
    names = [f"blocks.0.attn.hook_{name}" for name in ("attn_scores", "pattern", "z")]
    logits, cache = run(model, x, record=names)
    n = len(stored["z"])
    scores, pattern, z = (cache[name][:n].numpy() for name in names)
    close: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(scores[:, 0], stored["attn_scores"], **close)
    np.testing.assert_allclose(pattern[:, 0], stored["pattern"], **close)
    np.testing.assert_allclose(z[:, :, 0, 0], stored["z"], **close)
    np.testing.assert_allclose(logits.sigmoid().numpy(), stored["prob"], **close)
    np.testing.assert_allclose(pattern.sum(axis=-1), 1, atol=1e-6)
    assert task.label(x).tolist() == stored["y"].astype(bool).tolist()


@pytest.mark.parametrize("name", TASKS)
def test_a_checkpoint_reproduces_the_tutorial_s_numbers(name: str) -> None:
    assert len(np.load(DATA / f"{name}.npz")["prob"]) >= 32
    check_reproduced(DATA / f"{name}.pt", TASKS[name])


def test_all_checkpoints_reproduce_the_tutorial_s_numbers(shared: Path) -> None:
    folder = shared / "data" / "tutorial"
    if not folder.is_dir():
        pytest.skip(f"the tutorial's checkpoints are not there: no {folder}")
    index = json.loads((folder / "index.json").read_text())
    assert len(index) == 7
    for name, entry in index.items():
        stored = np.load(folder / f"{name}.npz")
        assert (len(stored["z"]), len(stored["prob"])) == (8, 256)
        if entry["task"] == "sparse-and":
            task = SparseAnd(entry["n_ctx"], entry["targets"], p="tutorial")
        else:
            sets = entry["targets_rule0"], entry["targets_rule1"]
            task = RuleAnd(entry["n_ctx"], sets, p="tutorial", rule_positions=[entry["rule_position"]])
        check_reproduced(folder / f"{name}.pt", task)


def state(**changes: Any) -> dict[str, Any]:
    """A small state_dict in the tutorial's shapes (T = 5, d = 3, d_head = 2), with changes; None leaves one out."""
    whole = {
        "tokenizer.weight": torch.ones(2, 3),
        "positioner": torch.ones(1, 5, 3),
        "Wq.weight": torch.ones(2, 3),
        "Wk.weight": torch.ones(2, 3),
        "Wv.weight": torch.ones(1, 3),
        "linear.weight": torch.ones(1, 5),
    }
    named = {name.replace("_weight", ".weight"): value for name, value in changes.items()}
    return {name: value for name, value in {**whole, **named}.items() if value is not None}


def refusal(path: Path, content: Any) -> str:
    """The message with which a saved object is refused; bytes are written as they are."""
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    before = path.read_bytes()
    with pytest.raises(BoolensError) as caught:
        import_tutorial(path)
    assert path.read_bytes() == before
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_other_sizes_are_taken_over(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = {name: torch.randn(value.shape, generator=generator) for name, value in state().items()}
    torch.save(weights, tmp_path / "x.pt")
    model = import_tutorial(tmp_path / "x.pt")
    assert (model.cfg.n_ctx, model.cfg.d_model, model.cfg.d_head, model.cfg.d_value) == (5, 3, 2, 1)
    x = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
    # The tutorial's forward pass, with its names
    e = weights["tokenizer.weight"][x] + weights["positioner"]
    q, k, v = (e @ weights[f"W{name}.weight"].T for name in "qkv")
    a = (q @ k.transpose(1, 2) / 2**0.5).softmax(dim=-1)
    expected = (a @ v)[:, :, 0] @ weights["linear.weight"][0]
    torch.testing.assert_close(model(x).detach(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file_is_refused(zipped: bool, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(torch.load(RULE_FILE, weights_only=True), buffer, _use_new_zipfile_serialization=zipped)
    whole = buffer.getvalue()
    for length in [0, 1, 2, 3, 4, 16, *range(20, len(whole), 53), len(whole) - 1]:
        message = refusal(tmp_path / "x.pt", whole[:length])
        assert re.search(r"is damaged|is not a whole torch file", message), (length, message)
        assert re.search(r"save it again$|save only model.state_dict\(\)$", message), (length, message)
    (tmp_path / "x.pt").write_bytes(whole)
    import_tutorial(tmp_path / "x.pt")


def test_an_older_pickle_protocol_is_read_without_a_warning(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "x.pt", pickle_protocol=3)  # torch warns of it: its unpickler is made for 2
    assert import_tutorial(tmp_path / "x.pt").W_E.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_damaged_file_is_refused_or_read_but_never_anything_else(tmp_path: Path) -> None:
    path, whole = tmp_path / "x.pt", RULE_FILE.read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            model = import_tutorial(path)
        except BoolensError:
            continue
        assert all(p.isfinite().all() for p in model.parameters())  # the flip hit a weight or a spare byte


class Malicious:
    """Unpickling this without care creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.target), "w")


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("hidden", [True, False])
def test_a_malicious_file_is_refused_and_not_run(hidden: bool, zipped: bool, tmp_path: Path) -> None:
    target, path = tmp_path / "created", tmp_path / "x.pt"
    content = state(linear_weight=Malicious(target)) if hidden else Malicious(target)
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(BoolensError) as caught:
        import_tutorial(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is refused: it is damaged or holds more than weights (Unsupported global: ")
    assert message.endswith("); save only model.state_dict()")
    assert "\n" not in message
    assert "weights_only" not in message  # none of torch's advice on how to load the file nevertheless
    assert not target.exists()


def test_a_malicious_pickle_without_torch_is_refused_and_not_run(tmp_path: Path) -> None:
    target = tmp_path / "created"
    bomb = pickle.dumps(Malicious(target), protocol=2)
    assert "Unsupported global: GLOBAL io.open" in refusal(tmp_path / "x.pt", bomb)
    assert not target.exists()
    pickle.loads(bomb).close()  # the bomb is a real one
    assert target.exists()


def test_a_whole_model_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.pt", torch.nn.Linear(2, 3))
    assert "is refused" in message
    assert message.endswith("save only model.state_dict()")


@pytest.mark.parametrize("name", TUTORIAL_NAMES)
def test_a_missing_tensor(name: str, tmp_path: Path) -> None:
    content = state()
    del content[name]
    message = refusal(tmp_path / "x.pt", content)
    assert f"holds {sorted(content)}; the tutorial's SelfAttention has exactly {sorted(TUTORIAL_NAMES)}" in message


def test_other_names(tmp_path: Path) -> None:
    extras: list[dict[Any, Tensor]] = [{"bias": torch.ones(1)}, {7: torch.ones(1)}]
    for extra in extras:
        assert "the tutorial's SelfAttention has exactly" in refusal(tmp_path / "x.pt", state() | extra)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"tokenizer_weight": torch.ones(3, 3)}, "tokenizer.weight: expected (2, 3), found (3, 3)"),
        ({"tokenizer_weight": torch.ones(2, 4)}, "tokenizer.weight: expected (2, 3), found (2, 4)"),
        ({"positioner": torch.ones(5, 3)}, "positioner: expected (1, 0, 0), found (5, 3)"),
        ({"positioner": torch.ones(2, 5, 3)}, "positioner: expected (1, 5, 3), found (2, 5, 3)"),
        ({"positioner": torch.ones(1, 6, 3)}, "linear.weight: expected (1, 6), found (1, 5)"),
        ({"Wq_weight": torch.ones(4, 3)}, "Wk.weight: expected (4, 3), found (2, 3)"),
        ({"Wq_weight": torch.ones(())}, "Wq.weight: expected (0, 3), found ()"),
        ({"Wk_weight": torch.ones(2)}, "Wk.weight: expected (2, 3), found (2,)"),
        ({"Wv_weight": torch.ones(2, 3)}, "Wv.weight: expected (1, 3), found (2, 3)"),
        ({"linear_weight": torch.ones(5)}, "linear.weight: expected (1, 5), found (5,)"),
        ({"linear_weight": torch.ones(1, 0), "positioner": torch.ones(1, 0, 3)}, "does not have the tutorial's shapes"),
        ({"Wq_weight": torch.ones(0, 3), "Wk_weight": torch.ones(0, 3)}, "does not have the tutorial's shapes"),
    ],
)
def test_wrong_shapes(changes: dict[str, Tensor], wrong: str, tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.pt", state(**changes))
    assert "does not have the tutorial's shapes: " in message
    assert wrong in message


def test_weights_that_are_not_finite_or_not_floats(tmp_path: Path) -> None:
    bad = torch.ones(1, 5)
    bad[0, 3] = torch.nan
    assert "W_readout contain NaN" in refusal(tmp_path / "x.pt", state(linear_weight=bad))
    ones = {name: value.long() for name, value in state().items()}
    assert "has types ['torch.int64']" in refusal(tmp_path / "x.pt", ones)


@pytest.mark.parametrize(
    ("content", "kind"), [([torch.ones(2)], "list"), (torch.ones(2), "Tensor"), ({"a": 1}, "dict"), (3, "int")]
)
def test_what_is_not_a_state_dict(content: Any, kind: str, tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.pt", content)
    assert f"holds {kind}, not a state_dict of tensors; save model.state_dict()" in message


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BoolensError, match=r"x\.pt does not exist; give a \.pt file of the tutorial's model"):
        import_tutorial(tmp_path / "x.pt")
    with pytest.raises(BoolensError, match=re.escape(f"{tmp_path} is not a whole torch file")):
        import_tutorial(tmp_path)
