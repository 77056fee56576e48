"""Files that were written before a name changed are read as ever."""

import pytest

from graph_machine.config import ExperimentConfig, TrainConfig
from graph_machine.config.legacy import modern_result, modern_window


def test_old_names_of_settings() -> None:
    old = ExperimentConfig().to_dict()
    old["train"]["eval_puzzles"] = old["train"].pop("eval_examples")
    old["train"]["test_puzzles"] = 7
    del old["train"]["test_examples"]
    assert ExperimentConfig.from_dict(old).train.test_examples == 7
    assert ExperimentConfig().set("train.eval_puzzles", "9").train.eval_examples == 9
    assert "eval_puzzles" not in TrainConfig().to_dict()


def test_old_results() -> None:
    part = {"puzzles": 2, "board_accuracy": 0.5, "cell_accuracy": 0.75, "loss": 1.0}
    old = {
        "board_accuracy": 0.5,
        "cell_accuracy": 0.75,
        "board": "4x4",
        "test_puzzles": 2,
        "bands": {"0.0": part},
        "by_clues": {"5": part},
    }
    new = modern_result(old)
    assert (new["label"], new["test_examples"]) == ("4x4", 2)
    assert next(iter(new["metrics"])) == "board_accuracy"
    assert new["groups"]["rating"]["0.0"]["examples"] == 2
    assert new["groups"]["clues"]["5"]["cell_accuracy"] == 0.75
    assert modern_result(new) == new
    assert old["test_puzzles"] == 2, "what was given stays as it is"


def test_sums_of_an_old_checkpoint() -> None:
    old = {"boards": 8.0, "boards_right": 2.0, "cells": 9.0, "cells_right": 5.0, "loss": 1.0}
    new = modern_window(old)
    assert new == {"examples": 8, "example_right": 2, "nodes": 9, "nodes_right": 5, "loss": 1}
    assert modern_window(new) == pytest.approx(new)
