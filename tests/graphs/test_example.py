"""The PyG example runs with each of its layers."""

import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pyg_classifier.py"


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("pyg_classifier", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("layers", ["gm", "gine", "gps"])
def test_layers_are_swapped_by_one_word(example: Any, layers: str) -> None:
    assert layers in get_args(example.Settings.__annotations__["layers"])
    settings = example.Settings(layers=layers, width=8, depth=1, graphs=32, epochs=1)
    assert 0.0 <= example.train(settings) <= 1.0
