"""Compile the kernels for GPUs that are not present, and read what the assembler reports.

python benchmarks/ahead.py          # a table, as in docs/gpu.md
"""

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from typing import Any

import torch
import triton
import tyro
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from graph_machine.ops.core import KernelInputs
from graph_machine.ops.triton.launch import Launch, plan_backward, plan_forward

# Compute capability -> what has it.
TARGETS = {80: "A100", 89: "RTX 4090", 90: "H100"}
POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
POINTERS |= {torch.uint8: "*u8", torch.int32: "*i32"}


@dataclass(frozen=True)
class Compiled:
    """One kernel for one target, in numbers per thread and per block."""

    op: str
    kernel: str
    target: int
    precision: str
    registers: int
    spills: int  # bytes stored and loaded because registers ran out
    shared: int  # bytes


def paper_inputs(op: str) -> KernelInputs:
    """An op of the paper's 9x9 model, also with given edges, as shapes without memory."""
    b, h, n, k, d = 64, 8, 81, 8, 8
    kind, given = op.removesuffix(GIVEN), op.endswith(GIVEN)
    slots = k + (5 + 1 if given else 0)  # of a grid, and the empty edge

    def make(*shape: int, **settings: Any) -> Tensor:
        return torch.empty(shape, device="meta", **settings)

    e2: dict[str, Any] = {"given": make(b, n, 5, dtype=torch.int32), "empty": True} if given else {}
    if kind in ("joint", "conditional"):
        e2 |= {"e2_keys": make(b, 1, n, slots, d), "e2_values": make(b, 1, n, slots, d)}
        e2 |= {"e2_addresses": make(b, n, k, n), "conditional": kind == "conditional"}
    elif kind == "preaggregated":
        e2 |= {"e2_keys": make(b, h, n, 1, d), "own_weights": make(b, n, h, slots)}
        e2["e2_addresses"] = make(b, n, h, n)  # mixed
    if kind != "attention":
        e2["e2_queries"] = make(b, n, h, d)
    return KernelInputs(
        n2_values=make(b, h, n, d),
        n1_queries=make(b, h, n, d),
        n2_keys=make(b, h, n, d),
        e1_weights=make(b, n, h, slots),
        e1_addresses=make(b, n, k, n),
        edge_temps=make(b, n, h),
        entropy_weights=make(b, n),
        **e2,
    )


GIVEN = ", given edges"
KINDS = ("attention", "joint", "conditional", "preaggregated")
OPS = (*KINDS, *(kind + GIVEN for kind in KINDS))


def calls(x: KernelInputs, precision: str) -> Iterator[Launch]:
    """Every kernel of a forward and a backward pass."""
    forward, outs = plan_forward(x, precision)
    yield from forward
    yield from plan_backward(x, outs, outs, precision)[0]


def source(call: Launch) -> ASTSource:
    """What the compiler needs of a call: types of arguments, and the values of constants."""
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    aligned: dict[tuple[int], Any] = {}
    for i, (name, value) in enumerate(call.arguments.items()):
        if isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
            aligned[(i,)] = [["tt.divisibility", 16]]
        elif value is None or call.kernel.params[i].is_constexpr:
            signature[name] = "constexpr"
            constants[name] = value
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    return ASTSource(call.kernel, signature, constants, aligned)


def compile_call(op: str, call: Launch, target: int) -> Compiled:
    """Down to machine code; Triton prints what `ptxas -v` says, if it is asked to."""
    said = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), redirect_stdout(said):
        triton.knobs.nvidia.dump_ptxas_log = True
        triton.knobs.compilation.always_compile = True  # a cached kernel has nothing to say
        where = GPUTarget("cuda", target, 32)
        built = triton.compile(source(call), target=where, options=call.options)
    assert built.asm["cubin"], "no machine code"
    registers = re.search(r"Used (\d+) registers", said.getvalue())
    assert registers is not None, said.getvalue()
    return Compiled(
        op=op,
        kernel=call.kernel.__name__.removesuffix("_kernel"),
        target=target,
        precision=call.arguments["PRECISION"],
        registers=int(registers.group(1)),
        spills=sum(int(size) for size in re.findall(r"(\d+) bytes spill", said.getvalue())),
        shared=built.metadata.shared,
    )


@dataclass(frozen=True)
class Args:
    """Compile the kernels of the paper's model, and print what the assembler says of them."""

    targets: tuple[int, ...] = tuple(TARGETS)
    """compute capabilities without the dot"""
    precisions: tuple[str, ...] = ("tf32", "ieee")
    """how float32 numbers are multiplied"""


def compile_all(args: Args) -> Iterator[Compiled]:
    for op in OPS:
        for precision in args.precisions:
            for call in calls(paper_inputs(op), precision):
                yield from (compile_call(op, call, target) for target in args.targets)


if __name__ == "__main__":
    for number, found in enumerate(compile_all(tyro.cli(Args))):
        print("[" if number == 0 else ",", json.dumps(asdict(found)), flush=True)
    print("]")
