"""torch.compile(fullgraph=True) and torch.export of a stack agree with eager, on CPU.

In processes of their own: the shape checker of the test run wraps functions, which a compiler
would trace as well.
"""

import pytest

from support.shell import script

PREAMBLE = """
import torch
from support.cases import StackSizes, batched, dense, edges_of, make_stack, make_state, ring
from tolerances import assert_close
from graph_machine.spaces import Context
from graph_machine.state import Visibility

torch.manual_seed(0)
ONE = StackSizes(num_layers=1)
F32 = torch.float32
MASK = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])

def same(out, expected):
    assert_close(out.node_features, expected.node_features)
    assert_close(edges_of(out), edges_of(expected))
    assert_close(dense(out), dense(expected))
"""

COMPILE = """
stack = make_stack(ONE, dtype=F32)
state = make_state(batched(ring(7), 2), dtype=F32, visibility=Visibility(MASK, causal=True))
context = Context(entropies=True)
with torch.no_grad():
    out, entropies = torch.compile(stack, fullgraph=True)(state, context)
    expected, expected_entropies = stack(state, context)
same(out, expected)
for ours, theirs in zip(entropies, expected_entropies):
    assert_close(ours, theirs)
"""

# Traced whole, with gradients, without the wait for a C++ compiler; fused operators as they are.
TRACE = """
cases = (("joint", "fused"), ("preaggregated", "fused"), ("conditional", "reference"))
for kind, backend in cases:
    torch.compiler.reset()
    stack = make_stack(ONE, kind=kind, dtype=F32)
    state = make_state(batched(ring(7), 2), dtype=F32)
    compiled = torch.compile(stack, fullgraph=True, backend="aot_eager")
    found = []
    for run in (compiled, stack):
        stack.zero_grad()
        out, entropies = run(state, Context(entropies=True, backend=backend))
        outs = (out.node_features, edges_of(out), dense(out))
        (sum(x.square().mean() for x in outs) + sum(entropies)).backward()
        found.append((out, [p.grad.clone() for p in stack.parameters()]))
    same(found[0][0], found[1][0])
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert_close(ours, theirs)
"""

EXPORT = """
for space, visibility in (("weight", Visibility(MASK, causal=True)), ("logit", Visibility())):
    stack = make_stack(ONE, dtype=F32)
    state = make_state(batched(ring(7), 2), dtype=F32, space=space, visibility=visibility)
    program = torch.export.export(stack, (state,))
    other = make_state(batched(ring(7), 2), dtype=F32, space=space, visibility=visibility)
    same(program.module()(other)[0], stack(other)[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", [COMPILE, TRACE, EXPORT], ids=["compile", "trace with gradients", "export"]
)
def test_agrees_with_eager(code: str) -> None:
    script(PREAMBLE + code)
