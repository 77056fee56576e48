"""Configs as data: JSON, dotted keys, and one clear line for every mistake."""

import pytest

from graph_machine.config import Config, InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.lab.conditions.budgets import with_settings
from graph_machine.lab.config import (
    ExperimentConfig,
    JigsawConfig,
    PointersConfig,
    SudokuConfig,
    TrainConfig,
)
from graph_machine.lab.tasks.base import task_of

BASE = ExperimentConfig()

# The user's view: configs check themselves, without the type checker of the test run.
pytestmark = pytest.mark.usefixtures("unchecked")


def test_settings_are_checked_together() -> None:
    base = BASE.replace(task=PointersConfig())
    both = {"task.test_hops": "64", "task.nodes": "80", "train.steps": "7"}
    for settings in (both, dict(reversed(both.items()))):
        changed = base.set_all(settings)
        assert (changed.flat()["task.nodes"], changed.train.steps) == (80, 7)
    with pytest.raises(ConfigError, match="nodes"):
        base.set_all({"task.test_hops": "64"})
    twice = with_settings(base, ["task.nodes=1", "task.nodes=50"])
    assert twice.flat()["task.nodes"] == 50


def test_json_round_trip() -> None:
    config = BASE.with_model(num_layers=3, top_s=2, num_edge_sublayers=1).with_task(box="2x3")
    assert ExperimentConfig.from_json(config.to_json()) == config
    assert isinstance(ExperimentConfig.from_json(config.to_json()).task, SudokuConfig)
    spec = task_of(SudokuConfig()).spec
    assert InputSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("model.num_layers", "4", 4),
        ("model.num_edge_sublayers", "none", None),
        ("model.top_s", "3", 3),
        ("model.factor_temps", "off", False),
        ("model.referral", "conditional", "conditional"),
        ("train.peak_lr", "3e-4", 3e-4),
        ("train.steps", "1e3", 1000),
        ("train.test_examples", "100", 100),
        ("task.box", "2x3", "2x3"),
        ("train.compile", "true", True),
    ],
)
def test_set_reads_text_by_the_fields_type(key: str, text: str, value: object) -> None:
    changed = BASE.set(key, text)
    found = changed.flat()[key]
    assert found == value
    assert type(found) is type(value)
    assert changed.differences(BASE).get(key, BASE.flat()[key]) == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("model.num_layer", "4", "Did you mean 'model.num_layers'"),
        ("modle.num_layers", "4", "Unknown setting 'modle.num_layers'"),
        ("model", "4", "is a group: set one of model.d_node"),
        ("model.num_layers.deep", "4", "'num_layers' is a single value"),
        ("model.num_layers", "four", "'four' is not a whole number"),
        ("train.steps", "1.5", "'1.5' is not a whole number"),
        ("train.steps", "inf", "'inf' is not a whole number"),
        ("train.steps", "15e-1", "'15e-1' is not a whole number"),
        ("train.peak_lr", "fast", "'fast' is not a number"),
        ("train.compile", "maybe", "'maybe' is not true or false"),
        ("model.sharpener", "fixd", "Did you mean 'fixed'"),
        ("task.size", "4", "Unknown setting"),
    ],
)
def test_set_says_what_is_wrong(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        BASE.set(key, text)


CHECKED: list[tuple[Config, list[tuple[dict[str, object], str]]]] = [
    (
        ModelConfig(),
        [
            ({"d_node": 0}, "d_node should be"),
            ({"d_ref_key": 0}, "d_ref_key should be"),
            ({"expansion": 0}, "expansion should be"),
            ({"num_edges": -1}, "num_edges should be"),
            ({"num_edge_sublayers": -1}, "num_edge_sublayers should be"),
            ({"num_edges": 0}, "num_edges = 0 leaves no edges"),
            ({"sharpener_value": -1.0}, "sharpener_value should be"),
            ({"position_base": 1.0}, "position_base should be"),
            ({"address_eps": 0.5}, "address_eps should be"),
            ({"init_std": 0.0}, "init_std should be"),
            ({"top_s": 0}, "top_s should be"),
            ({"gumbel_tau": -0.1}, "gumbel_tau should be"),
            ({"gumbel_tau": 0.1}, "gumbel_tau needs top_s"),
            (
                {"top_s": 2, "address_space": "logit"},
                "top_s simulates sparsity in the weight space",
            ),
            ({"position": "sinusoidal", "d_node": 6}, "d_node divisible by 4"),
            ({"position": "rotary", "d_attn_key": 6}, "d_attn_key divisible by 4"),
            ({"position": "rotary", "d_ref_key": 6}, "d_ref_key divisible by 4"),
            ({"d_node": "64"}, "ModelConfig.d_node should be a whole number, got '64'"),
            ({"d_node": True}, "d_node should be a whole number"),
            ({"referral": "jont"}, "one of joint, conditional, preaggregated, got 'jont'"),
            ({"depth": 3}, "ModelConfig has no setting 'depth'"),
        ],
    ),
    (
        TrainConfig(),
        [
            ({"steps": 0}, "steps should be"),
            ({"eval_examples": 0}, "eval_examples should be"),
            ({"test_examples": 0}, "test_examples should be"),
            ({"accumulate": 3}, "batch_size 64 should be a multiple of accumulate 3"),
            ({"peak_lr": 0.0}, "peak_lr should be"),
            ({"warmup": 1.0}, "warmup should be"),
            ({"final_lr": 1.5}, "final_lr should be"),
            ({"beta2": 1.0}, "beta2 should be"),
            ({"clip_norm": 0.0}, "clip_norm should be"),
            ({"entropy_weight": -1.0}, "entropy_weight should be"),
            ({"precision": "float16"}, "precision should be one of"),
        ],
    ),
    (
        SudokuConfig(),
        [
            ({"box": "1x2"}, "Box shape 1x2: rows and columns must be at least 2"),
            ({"puzzles": 5}, "puzzles should be"),
            ({"clues_extra": -1}, "clues_extra should be"),
        ],
    ),
    (
        task_of(SudokuConfig()).spec,
        [
            ({"num_tokens": 0}, "a spec needs tokens or node features"),
            ({"grid": None}, "a grid graph needs grid"),
            ({"grid": (9, 8)}, "num_nodes should be rows x columns"),
            ({"alphabet": "123"}, "alphabet should have 10 characters"),
            ({"answers": "123"}, "answers should have 9 characters"),
        ],
    ),
]


@pytest.mark.parametrize(("base", "wrong"), CHECKED, ids=["model", "train", "task", "spec"])
def test_settings_are_checked(base: Config, wrong: list[tuple[dict[str, object], str]]) -> None:
    for settings, message in wrong:
        with pytest.raises(ConfigError, match=message):
            base.replace(**settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "ExperimentConfig: not valid JSON"),
        ("[]", "ExperimentConfig should be an object, got list"),
        ('{"modl": {}}', "no setting 'modl'. Did you mean 'model'"),
        ('{"model": {"d_nod": 3}}', "ModelConfig has no setting 'd_nod'. Did you mean 'd_node'"),
        ('{"task": {"box": "2x2"}}', "A task should be an object with a name"),
        ('{"task": {"name": "sudoko"}}', "Unknown task 'sudoko'. Did you mean 'sudoku'"),
    ],
)
def test_damaged_json(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExperimentConfig.from_json(text)


def test_schedule_spreads_edge_sublayers_evenly() -> None:
    assert ModelConfig(num_layers=8, num_edge_sublayers=2).schedule() == (1, 0, 0, 0, 1, 0, 0, 0)
    assert ModelConfig(num_layers=3).schedule() == (1, 1, 1)
    assert ModelConfig(num_layers=2, num_edge_sublayers=4).schedule() == (2, 2)
    assert ModelConfig(num_layers=3, num_edge_sublayers=0).schedule() == (0, 0, 0)
    assert sum(ModelConfig(num_layers=7, num_edge_sublayers=3).schedule()) == 3


def test_every_field_has_its_one_line_meaning() -> None:
    import dataclasses

    for kind in (ModelConfig, TrainConfig, SudokuConfig, InputSpec, ExperimentConfig):
        for item in dataclasses.fields(kind):
            assert item.metadata.get("doc"), f"{kind.__name__}.{item.name}"


def test_raw_entropies_are_for_dense_spaces() -> None:
    with pytest.raises(ConfigError, match="entropy_of=raw"):
        ExperimentConfig().with_model(address_space="sparse").with_train(entropy_of="raw")


def test_old_names_of_settings_are_read() -> None:
    config = JigsawConfig.from_dict({"name": "jigsaw", "told": True})
    assert isinstance(config, JigsawConfig)
    assert config.regions_in_tokens
    assert TrainConfig.from_dict({"eval_puzzles": 7}).eval_examples == 7
