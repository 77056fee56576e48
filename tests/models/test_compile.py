"""The whole model under torch.compile and torch.export agrees with eager, on the CPU.

In processes of their own: the shape checker of the test run wraps functions, and would be traced.
"""

import pytest

from support.shell import script

PREAMBLE = """
import torch
from graph_machine.config import InputSpec, ModelConfig
from graph_machine.models import GraphMachine

torch.manual_seed(0)
tokens = torch.randint(4, (3, 9))

def build(**settings):
    config = ModelConfig(num_layers=1, d_node=8, num_heads=2, **settings)
    spec = InputSpec(
        num_tokens=4, num_outputs=3, num_nodes=9, grid=(3, 3), graph="grid", num_edge_categories=6
    )
    return GraphMachine(config, spec).eval()

def logits_and_gradients(call, **rounds):
    model.zero_grad()
    out = call(tokens, **rounds)
    logits = torch.stack(out.round_logits or (out.logits,))
    logits.square().sum().backward()
    return [logits.detach(), *(p.grad.clone() for p in model.parameters())]

def same(found, expected):
    for ours, other in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-4, atol=1e-5)

class Logits(torch.nn.Module):  # an exported program returns tensors, not our state
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).logits

def same_when_exported(model):
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(Logits(model), (tokens,), dynamic_shapes=({0: batch},))
    for inputs in (tokens, torch.randint(4, (5, 9))):
        same([program.module()(inputs)], [model(inputs).logits])
"""

LAYERS = """
model = build()
# aot_eager captures and differentiates the whole graph, without a C++ compiler's minute.
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
same(logits_and_gradients(compiled), logits_and_gradients(model))
same_when_exported(model)
"""

# The number of rounds changes from step to step, and gradients are off in the first of them.
ROUNDS = """
model = build(core_layers=1, rounds=2)
compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
for rounds in (2, 3):
    call = {"rounds": rounds, "grad_rounds": 1, "keep_rounds": 2}
    same(logits_and_gradients(compiled, **call), logits_and_gradients(model, **call))
same_when_exported(model)
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [LAYERS, ROUNDS], ids=["layers", "rounds"])
def test_whole_model(code: str) -> None:
    script(PREAMBLE + code)
