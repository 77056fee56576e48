"""The notebooks of examples/ run from top to bottom, and reach a result worth showing."""

import json
from pathlib import Path
from typing import Any

import pytest

pyplot = pytest.importorskip(
    "matplotlib.pyplot", reason="matplotlib is not installed; with the extra 'analysis', they run"
)
pytest.importorskip(
    "torch_geometric", reason="PyG is not installed; with the extra 'pyg', they run"
)
ROOT = Path(__file__).parents[1]
# What a notebook computes, and a bound below what it reached with its own and three other seeds.
BOUNDS = {
    "edge_types": {"accuracy": 0.9},
    "graph_classification": {"accuracy": 0.9},
    "link_prediction": {"auc": 0.85},
    "look_at_edges": {"accuracy": 0.95, "exact": 0.9},
    "node_classification": {"accuracy": 0.9},
}


def test_every_notebook_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples/notebooks").glob("*.ipynb")} == {*BOUNDS}


@pytest.mark.parametrize("name", BOUNDS)
def test_notebooks(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyplot, "show", lambda: None)
    pyplot.switch_backend("agg")
    cells = json.loads((ROOT / f"examples/notebooks/{name}.ipynb").read_bytes())["cells"]
    assert "`pip install" in "".join(cells[0]["source"])
    names: dict[str, Any] = {"__name__": name}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}[{number}]", "exec"), names)
    assert pyplot.get_fignums()  # it ends with a picture
    pyplot.close("all")
    for result, bound in BOUNDS[name].items():
        assert names[result] > bound, result
