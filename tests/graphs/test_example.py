"""The PyG example runs with each of its layers; so does the comparison of costs."""

import importlib.util
from pathlib import Path
from typing import Any, get_args

import pytest

ROOT = Path(__file__).parents[2]


def script(path: str) -> Any:
    """A script as a module, not run."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> Any:
    return script("examples/pyg_classifier.py")


@pytest.mark.parametrize("layers", ["gm", "gine", "gps"])
def test_layers_are_swapped_by_one_word(example: Any, layers: str) -> None:
    assert layers in get_args(example.Settings.__annotations__["layers"])
    settings = example.Settings(layers=layers, width=8, depth=1, graphs=32, epochs=1)
    assert 0.0 <= example.train(settings) <= 1.0


def test_costs_are_measured_for_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    costs = script("benchmarks/encoder_cost.py")
    found = costs.measure(nodes=5, repeats=1)
    assert list(found) == list(costs.kinds())
    assert min(found.values()) > 0.0
    costs.main(costs.Settings(sizes=(4,), repeats=1))
    assert "| GPS | " in capsys.readouterr().out
