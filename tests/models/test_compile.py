"""The whole model under torch.compile and torch.export agrees with eager, on the CPU.

In a process of its own: the shape checker of the test run wraps functions, and would be traced.
"""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.models import GraphMachine

torch.manual_seed(0)
config = ModelConfig(num_layers=1, d_node=8, num_heads=2)
spec = InputSpec(
    num_tokens=4, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid", num_edge_categories=6
)
model = GraphMachine(config, spec).eval()
tokens = torch.randint(4, (3, 9))

def logits_and_gradients(call):
    model.zero_grad()
    logits = call(tokens).logits
    logits.square().sum().backward()
    return logits.detach(), [p.grad.clone() for p in model.parameters()]

class Logits(torch.nn.Module):  # an exported program returns tensors, not our state
    def __init__(self):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits

expected, gradients = logits_and_gradients(model)
# aot_eager captures and differentiates the whole graph, without a C++ compiler's minute.
found, theirs = logits_and_gradients(torch.compile(model, fullgraph=True, backend="aot_eager"))
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
for ours, other in zip(gradients, theirs, strict=True):
    torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)

batch = torch.export.Dim("batch", min=2, max=64)
program = torch.export.export(Logits(), (tokens,), dynamic_shapes=({0: batch},))
more = torch.randint(4, (5, 9))
for inputs in (tokens, more):
    found = program.module()(inputs)
    torch.testing.assert_close(found, model(inputs).logits, rtol=1e-4, atol=1e-5)
print("agree")
"""


@pytest.mark.slow
def test_whole_model() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240
    )
    assert done.stdout.strip().endswith("agree"), done.stdout + done.stderr
