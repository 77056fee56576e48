"""What `from graph_machine import ...` offers."""

import subprocess
import sys

import pytest

import graph_machine


def test_names() -> None:
    assert set(graph_machine._HOME) <= set(dir(graph_machine))
    with pytest.raises(AttributeError, match="'Nothing'"):
        _ = graph_machine.Nothing  # type: ignore[attr-defined]


def test_the_library_alone_pulls_in_nothing_of_the_lab() -> None:
    code = (
        "import sys, torch; from graph_machine import GraphEncoder, GraphMachine, GraphState; "
        "encoder = GraphEncoder(d_in=4, d_node=8, num_layers=1); "
        "encoder(torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])).sum().backward(); "
        "print(sorted(n for n in sys.modules if n.startswith('graph_machine.lab') or "
        "n.split('.')[0] in ('tyro', 'rich', 'numba', 'matplotlib', 'huggingface_hub')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
