"""Command-line options as tasks, configurations and seeds; everything that cannot be is refused by name."""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

from analyses import cli
from analyses.options import (
    DEFAULT_LR,
    OPTION_TYPES,
    import_task,
    model_config,
    parse_index_sets,
    parse_p,
    parse_seeds,
    read_options,
    task_maker,
    train_config,
)
from interp.config import AttentionConfig, LinearConfig, MLPConfig
from interp.errors import BoolensError
from interp.seeds import torch_generator
from tasks import Junta, Majority, Or, Parity, RuleAnd, SparseAnd, TaskError, draw_table


class TestSeeds:
    @pytest.mark.parametrize(
        ("text", "seeds"),
        [("0:3", (0, 1, 2)), (":2", (0, 1)), ("5:7", (5, 6)), ("3,5,8", (3, 5, 8)), ("4", (4,)), ("9, 2", (9, 2))],
    )
    def test_several(self, text: str, seeds: tuple[int, ...]) -> None:
        assert parse_seeds(0, text) == (seeds, True)

    def test_one(self) -> None:
        assert parse_seeds(6, None) == ((6,), False)

    @pytest.mark.parametrize("text", ["a", "1:2:3", "3:", "", "1,,2", "1.5", "0:x", "0-3"])
    def test_no_range(self, text: str) -> None:
        with pytest.raises(BoolensError, match=re.escape(f"--seeds {text!r} is not a range; write 0:32 (0 to 31) or")):
            parse_seeds(0, text)

    @pytest.mark.parametrize(
        ("seed", "text"), [(0, "3:3"), (0, "5:2"), (0, "1,1"), (0, "-2:2"), (0, "0,-1"), (-1, None)]
    )
    def test_empty_repeated_or_negative(self, seed: int, text: str | None) -> None:
        with pytest.raises(BoolensError, match="must be different whole numbers of at least 0"):
            parse_seeds(seed, text)

    def test_one_and_several(self) -> None:
        with pytest.raises(BoolensError, match="--seed 3 and --seeds 0:2 exclude each other; give one"):
            parse_seeds(3, "0:2")


class TestIndexSets:
    @pytest.mark.parametrize(
        ("text", "sets"), [("3,7,12", [[3, 7, 12]]), ("3,7/2,5", [[3, 7], [2, 5]]), ("-1", [[-1]]), (" 1, 2", [[1, 2]])]
    )
    def test_sets(self, text: str, sets: list[list[int]]) -> None:
        assert parse_index_sets(text) == sets

    @pytest.mark.parametrize("text", ["", "a", "1,", "/", "1/", "1;2", "1.0", "[1,2]"])
    def test_no_sets(self, text: str) -> None:
        with pytest.raises(BoolensError, match=re.escape(f"--targets {text!r} is not a list of indices; write 3,7,12")):
            parse_index_sets(text)


@pytest.mark.parametrize(
    ("text", "p"), [(None, "balanced"), ("balanced", "balanced"), ("tutorial", "tutorial"), ("0.3", 0.3), ("x", "x")]
)
def test_p(text: str | None, p: Any) -> None:
    assert parse_p(text) == p


class TestTasks:
    def test_defaults_are_the_tutorial_s_sizes_drawn_by_the_seed(self) -> None:
        sparse, rule = task_maker("sparse-and"), task_maker("rule-and")
        assert sparse(4) == SparseAnd.draw(30, 3, torch_generator(4, "targets"))
        assert rule(4) == RuleAnd.draw(11, 2, torch_generator(4, "targets"))
        assert len({sparse(seed).targets for seed in range(5)}) == 5

    def test_given_targets_are_those_of_every_seed(self) -> None:
        draw = task_maker("sparse-and", n_ctx=9, targets="7,-1", p="0.3")
        assert draw(0) is draw(5)
        assert draw(0) == SparseAnd(9, (7, 8), p=0.3)

    def test_rules(self) -> None:
        assert task_maker("rule-and", targets="3,7/2,5")(0) == RuleAnd(11, ((3, 7), (2, 5)))
        assert task_maker("rule-and", targets="3/2", n_ctx=5, rule_positions="0")(0).rule_positions == (0,)
        four = task_maker("rule-and", targets="3/2/4/5", n_ctx=8, rule_positions="7,0")(0)
        assert four.rule_positions == (7, 0)
        assert task_maker("rule-and", n_rule_bits=2, n_targets=1, p="tutorial")(0).n_rules == 4

    @pytest.mark.parametrize(("name", "kind"), [("or", Or), ("majority", Majority), ("parity", Parity)])
    def test_functions_of_targets(self, name: str, kind: type[Or]) -> None:
        assert task_maker(name)(4) == kind.draw(30, 3, torch_generator(4, "targets"))
        assert task_maker(name, n_ctx=9, n_targets=5)(4) == kind.draw(9, 5, torch_generator(4, "targets"))
        assert task_maker(name, n_ctx=9, targets="7,-1", p="0.3")(3) == kind(9, (7, 8), p=0.3)

    def test_juntas(self) -> None:
        stream = torch_generator(4, "targets")
        assert task_maker("junta", n_ctx=9, n_targets=4)(4) == Junta.draw(9, 4, stream)
        assert task_maker("junta", n_ctx=9, targets="7,2", table="0100")(4) == Junta(9, (2, 7), "0010")
        table_only = task_maker("junta", n_ctx=9, table="0111")
        assert {(t.table, len(t.targets[0])) for t in map(table_only, range(5)) if isinstance(t, Junta)} == {
            ("0111", 2)
        }
        assert len({table_only(seed).targets for seed in range(5)}) > 1
        targets_only = task_maker("junta", n_ctx=9, targets="2,7,4", p="0.4")
        assert targets_only(4) == Junta(9, (2, 7, 4), draw_table(3, torch_generator(4, "targets")), p=0.4)
        assert targets_only(4) != targets_only(5)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("xor", {}, "there is no task 'xor'; choose from junta, majority, or, parity, rule-and, sparse-and"),
            ("or", {"rule_positions": "3"}, "or has no rule bits"),
            ("junta", {"n_rule_bits": 1}, "junta has no rule bits"),
            ("parity", {"targets": "1,2/3"}, "names 2 sets; parity has one"),
            ("junta", {"targets": "1,2", "n_targets": 2}, "--targets and --n-targets exclude each other"),
            ("parity", {"table": "0110"}, "parity takes no --table; leave it out, or use junta"),
            ("rule-and", {"table": "0110"}, "rule-and takes no --table"),
            ("sparse-and", {"targets": "1,2", "n_targets": 2}, "--targets and --n-targets exclude each other"),
            ("sparse-and", {"rule_positions": "3"}, "sparse-and has no rule bits"),
            ("sparse-and", {"n_rule_bits": 1}, "sparse-and has no rule bits"),
            ("sparse-and", {"targets": "1,2/3"}, "names 2 sets; sparse-and has one"),
            ("rule-and", {"rule_positions": "3"}, "--rule-positions goes with --targets"),
            ("rule-and", {"targets": "3,7/2,5", "n_rule_bits": 1}, "leave --n-rule-bits out"),
            ("rule-and", {"targets": "3/2", "rule_positions": "8/9"}, "names several sets; write one, as 9,10"),
            ("rule-and", {"targets": "3/2", "rule_positions": ""}, "--rule-positions '' is not a list of indices"),
            ("rule-and", {"targets": "3/2", "rule_positions": "x"}, "--rule-positions 'x' is not a list of indices"),
        ],
    )
    def test_options_that_exclude_each_other(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(BoolensError, match=re.escape(message)):
            task_maker(name, **options)

    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("sparse-and", {"n_ctx": 4, "n_targets": 5}, "5"),
            ("sparse-and", {"n_ctx": 0}, "n_ctx is 0"),
            ("sparse-and", {"n_targets": 0}, "each needs at least 1"),
            ("sparse-and", {"targets": "30"}, r"index 30 is outside \[0, 30\)"),
            ("sparse-and", {"targets": "3,3"}, "index 3 is given twice"),
            ("sparse-and", {"targets": "1,2", "p": "1.5"}, r"p = 1.5 is outside \(0, 1\)"),
            ("sparse-and", {"targets": "1,2", "p": "0"}, r"p = 0.0 is outside \(0, 1\)"),
            ("sparse-and", {"p": "even"}, "p = 'even' is not a probability"),
            ("rule-and", {"n_rule_bits": 0}, "0 rule bits; give 1 to n_ctx = 11"),
            ("rule-and", {"targets": "1/2/3"}, "3 target sets"),
            ("or", {"p": "tutorial"}, "p = 'tutorial' is not a probability"),
            ("majority", {"n_ctx": 4, "n_targets": 5}, "5 target indices asked for, but only 4"),
            ("junta", {"n_targets": 17}, "17 targets of a junta"),
            ("junta", {"n_targets": 3, "table": "0110"}, "the table has 4 entries; 3 targets need"),
            ("junta", {"table": "01100"}, "the table has 5 entries; 2 targets need"),
            ("junta", {"table": ""}, "the table has 0 entries; 1 targets need"),
            ("junta", {"table": "1111"}, "the table is constant"),
            ("junta", {"targets": "3,8", "table": "0101"}, r"not depend on targets \[3\]; .* targets 8 with table 01"),
            ("rule-and", {"targets": "10/2"}, "position 10 is both a rule position and a target"),
        ],
    )
    def test_impossible_tasks(self, name: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(TaskError, match=message):
            task_maker(name, **options)(0)

    def test_of_an_imported_checkpoint(self) -> None:
        assert import_task("rule-and", "3/2", "tutorial", 7, "0") == RuleAnd(7, ((3,), (2,)), "tutorial", (0,))
        assert import_task("junta", "3,2", "balanced", 7, None, "0100") == Junta(7, (2, 3), "0010")
        with pytest.raises(BoolensError, match="is known by its --table, such as 0110; give it"):
            import_task("junta", "3,2", "balanced", 7, None)


class TestModels:
    def test_what_is_not_given_keeps_its_default(self) -> None:
        none: dict[str, Any] = {"d_model": None, "n_heads": None, "d_mlp": None, "bias": None}
        assert model_config("attention", 9, {**none, "n_heads": 3}) == AttentionConfig(n_ctx=9, n_heads=3)
        assert model_config("mlp", 9, {**none, "d_mlp": 8}) == MLPConfig(n_ctx=9, d_mlp=8)
        assert model_config("linear", 9, none) == LinearConfig(n_ctx=9)
        assert model_config("attention", 9, {"bias": False}) == AttentionConfig(n_ctx=9)

    def test_an_unknown_architecture(self) -> None:
        with pytest.raises(BoolensError, match="there is no model 'tree'; choose from attention, cls, mlp, linear"):
            model_config("tree", 9, {})

    def test_options_of_another_architecture_are_all_named(self) -> None:
        with pytest.raises(
            BoolensError, match="a linear model has no --d-mlp, --n-heads; leave out, or choose another"
        ):
            model_config("linear", 9, {"n_heads": 2, "d_mlp": 8})

    @pytest.mark.parametrize("architecture", DEFAULT_LR)
    def test_the_learning_rate_defaults_by_architecture(self, architecture: str) -> None:
        assert train_config(architecture, {"lr": None, "steps": 7}).lr == DEFAULT_LR[architecture]
        assert train_config(architecture, {"lr": 0.5}).lr == 0.5
        assert DEFAULT_LR == {"attention": 0.01, "cls": 0.001, "mlp": 0.001, "linear": 0.01}


class TestConfigFile:
    def read(self, tmp_path: Path, content: Any) -> dict[str, Any]:
        path = tmp_path / "options.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_options(path)

    def test_options_by_name(self, tmp_path: Path) -> None:
        content = {"n_ctx": 9, "targets": "1,2", "p": 0.3, "lr": 1, "dropout": 0.5, "bias": True, "model": "mlp"}
        assert self.read(tmp_path, content) == content
        assert self.read(tmp_path, {}) == {}
        assert self.read(tmp_path, {"p": "tutorial"}) == {"p": "tutorial"}

    def test_holds_the_options_of_train(self) -> None:
        options = inspect.signature(cli.train).parameters.keys()
        assert OPTION_TYPES.keys() == options - {"context", "task", "out", "resume", "config", "as_json"}

    @pytest.mark.parametrize(
        ("name", "value", "kind"),
        [
            *((name, value, "a whole number") for name in ("n_ctx", "n_targets", "n_rule_bits", "seed", "steps")
              for value in ("3", 1.5, True, None, [3])),
            *((name, value, "text") for name in ("targets", "table", "seeds", "model", "rule_positions", "device")
              for value in (3, [3, 7], None, {})),
            ("lr", "0.1", "a whole number or a number"),
            ("bias", 1, "true or false"),
            ("p", [0.5], "a whole number or a number or text"),
        ],
    )  # fmt: skip
    def test_values_of_the_wrong_type(self, name: str, value: Any, kind: str, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=re.escape(f"options.json: {name} is {value!r}; it must be {kind}")):
            self.read(tmp_path, {name: value})

    @pytest.mark.parametrize("name", ["nope", "n-ctx", "task", "out", "resume", "config", "as_json", "json", "context"])
    def test_unknown_options(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=re.escape(f"unknown options ['{name}']; there are batch_size, bias,")):
            self.read(tmp_path, {name: 1, "n_ctx": 9})

    @pytest.mark.parametrize(
        ("content", "message"),
        [("{", "is not valid JSON"), ("", "is not valid JSON"), ("[1]", "holds list"), ("3", "holds int")],
    )
    def test_files_that_hold_no_options(self, content: str, message: str, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=message):
            self.read(tmp_path, content)

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(BoolensError, match=r"nope.json does not exist"):
            read_options(tmp_path / "nope.json")
        with pytest.raises(BoolensError, match="is not valid JSON"):
            read_options(tmp_path)
        (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
        with pytest.raises(BoolensError, match="is not valid JSON"):
            read_options(tmp_path / "bytes.json")
