"""From tensors to kernel calls: layouts, blocks and buffers. Plans also serve to compile ahead.

Letters: b graph, n source, h head, k slot of e1, m target n2, l slot of e2, a address target; d, e,
v and c are widths of node keys, e2 keys, values and e2 values. Arguments of kernels have the names
of `KernelInputs` and `KernelOuts`, gradients the same with `d_`. In memory, queries, keys and
values are (b, n, h, d).

In pre-aggregated referral every n2 offers one mixed edge per head: a second pair of queries and
keys, and an address beside the value. The mixed addresses are a matrix product, in both passes.

Conditional weights are joint ones once each n2 factor is less the log-sum-exp of its e2 factors.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.core import (
    STATS,
    KernelInputs,
    KernelOuts,
    beside,
    empty_outs,
    mixture,
    mixture_grads,
)
from graph_machine.ops.triton.backward import addresses_kernel, sources_kernel, targets_kernel
from graph_machine.ops.triton.forward import attend_kernel, collect_addresses_kernel

# The least size of an axis of a matrix product in the Triton that CUDA builds of torch 2.13 bring.
LEAST = 16
# Gradients that the kernels write as they are; those of e1 come from that of the mixed addresses.
WRITTEN = ("edge_temps", "n1_queries", "n2_keys", "n2_values", "e2_queries", "e2_addresses")
PER_HEAD = ("e2_keys", "e2_values")


@dataclass(frozen=True)
class Blocks:
    """Tiles: sources, targets, address columns of outputs and of sums; warps per program.

    These sizes need no more registers than there are, or few more in exact float32
    (`benchmarks/ahead.py`); which are the fastest is not known yet.
    """

    n: int = 16
    m: int = 32
    a: int = 128
    a_inner: int = 32
    a_sources: int = 16  # the same in the kernel over sources
    warps: int = 4

    def fit(self, x: KernelInputs, precision: str) -> "Blocks":
        """No larger than the problem asks for, or than registers allow.

        Exact products are not for tensor cores; pairs with given edges have more to keep.
        """
        given = x.e2_values is not None and (x.given is not None or x.empty)
        if precision == "ieee":
            self = replace(self, a=min(self.a, 64))
        elif given:
            self = replace(self, a=min(self.a, 64), m=min(self.m, 16))
        (_, _, n, m), a = x.sizes, _width(x.e2_addresses)
        sizes = {"n": n, "m": m, "a": a, "a_inner": a, "a_sources": a}
        found = {key: min(getattr(self, key), pad(size)) for key, size in sizes.items()}
        return replace(self, **found)


BLOCKS = Blocks()


def pad(size: int) -> int:
    """The next power of two that a matrix product takes."""
    return max(LEAST, 1 << (size - 1).bit_length())


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and every argument by name."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    warps: int

    @property
    def options(self) -> dict[str, Any]:
        """Loops are not pipelined: buffers in flight would take the registers that sums need.

        Without a bound of its own, the assembler would rather spill than use all registers.
        """
        return {"num_warps": self.warps, "num_stages": 1, "enable_fp_fusion": True, "maxnreg": 255}

    def run(self) -> None:
        self.kernel[self.grid](**self.arguments, **self.options)


def precision() -> str:
    """How float32 numbers are multiplied: as they are, or rounded to tf32 if torch may do so.

    Halves are multiplied exactly in either case; sums are float32.
    """
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def as_kernels_read(x: KernelInputs) -> KernelInputs:
    """The same tensors, with the memory that kernels read; with `own_weights`, mixed addresses."""
    found: dict[str, Any] = {
        name: None if y is None else y.contiguous()
        for name, y in x._asdict().items()
        if isinstance(y, Tensor | None)
    }
    for name in ("n1_queries", "n2_keys", "n2_values"):
        heads = getattr(x, name)
        if heads is not None:  # projections lie so already
            found[name] = heads.transpose(1, 2).contiguous().transpose(1, 2)
    if x.own_weights is not None and x.e2_addresses is not None:
        found["e2_addresses"] = mixture(x.own_weights, x.e2_addresses, *beside(x))  # b m h a
    if x.mask is not None:
        found["mask"] = x.mask.contiguous().view(torch.uint8)
    return x._replace(**found)


def _shares(x: KernelInputs) -> Tensor | None:
    """What each node that may be seen gets of the empty edge of a source, (b, n)."""
    (b, _, n, _), even = x.sizes, beside(x)[2]
    return None if even is None else even.amax(dim=(2, 3)).expand(b, n).contiguous()


def _width(tensor: Tensor | None) -> int:
    return 1 if tensor is None else tensor.shape[-1]


def _rows(addresses: Tensor | None) -> int:
    """Slots that have rows of addresses."""
    return 0 if addresses is None else addresses.shape[2]


def _plan(x: KernelInputs, precision: str) -> tuple[Blocks, dict[str, Any]]:
    """Blocks, and the arguments that several kernels share; `_call` picks those of a kernel."""
    b, h, n, m = x.sizes
    blocks = BLOCKS.fit(x, precision)
    widths = {"D": x.n2_keys, "E": x.e2_keys, "V": x.n2_values, "C": x.e2_values}
    sizes = {name: _width(tensor) for name, tensor in widths.items()}
    mask_b = mask_n = 0
    if x.mask is not None:
        mask_n = 0 if x.mask.shape[1] == 1 else m
        mask_b = 0 if x.mask.shape[0] == 1 else x.mask.shape[1] * m
    own, pairs = x.own_weights is not None, x.e2_values is not None
    return blocks, {
        **x._asdict(),
        "shares": _shares(x),
        "B": b,
        "H": h,
        "N": n,
        "M": m,
        "A": _width(x.e2_addresses),
        "mask_b": mask_b,
        "mask_n": mask_n,
        "EDGE": x.e1_weights is not None,
        "NODE": x.n2_keys is not None,
        "E2": x.e2_keys is not None,
        "E2_VALUES": x.e2_values is not None,
        "ADDRESSES": x.e2_addresses is not None,
        "TEMPS": x.edge_temps is not None,
        "MASK": x.mask is not None,
        "LOGIT_SPACE": x.logit_space,
        "ENTROPIES": x.entropy_weights is not None,
        "SHARED": x.e2_keys is not None and x.e2_keys.shape[1] == 1 != h,
        "OWN": own,
        "HEADS": 1 if own else h,
        "GIVEN": x.given is not None,
        "EMPTY": int(x.empty),
        "GIVEN_E2": x.given is not None and pairs,
        "EMPTY_E2": x.empty and pairs,
        "CONDITIONAL": x.conditional,
        "K": _rows(x.e1_addresses),
        "G": 0 if x.given is None else x.given.shape[-1],
        "L": x.slots,
        "MADE": _rows(x.e2_addresses),
        **sizes,
        **{f"{name}_PAD": pad(size) for name, size in sizes.items()},
        "BLOCK_N": blocks.n,
        "BLOCK_M": blocks.m,
        "PRECISION": precision,
        "STATS": STATS,
    }


def _call(kernel: Any, grid: tuple[int, ...], known: dict[str, Any], block_a: int = 0) -> Launch:
    known = known | {"BLOCK_A": block_a}
    return Launch(kernel, grid, {name: known[name] for name in kernel.arg_names}, BLOCKS.warps)


def _collected(x: KernelInputs, outs: KernelOuts, prefix: str = "") -> dict[str, Tensor | None]:
    """Outputs or their gradients as arguments; what is not collected is None."""
    there = (True, x.e2_values is not None, x.e2_addresses is not None)
    found = zip(KernelOuts._fields, outs, there)
    return {f"{prefix}{name}": out.contiguous() if use else None for name, out, use in found}


def plan_forward(x: KernelInputs, precision: str) -> tuple[list[Launch], KernelOuts]:
    """The calls of a forward pass, and the outputs that they fill."""
    b, h, n, m = x.sizes
    blocks, known = _plan(x, precision)
    outs = empty_outs(x, torch.float32)
    factors = None if x.e2_addresses is None else outs.stats.new_empty(b, h, n, m)
    known |= {**_collected(x, outs), "stats": outs.stats, "n2_factors": factors}
    rows = -(-n // blocks.n)
    calls = [_call(attend_kernel, (rows, b * h), known)]
    if x.e2_addresses is not None:
        grid = (rows, -(-x.widths[2] // blocks.a), b * h)
        calls.append(_call(collect_addresses_kernel, grid, known, blocks.a))
    return calls, outs


def plan_backward(
    x: KernelInputs, outs: KernelOuts, above: KernelOuts, precision: str
) -> tuple[list[Launch], dict[str, Any]]:
    """The calls of a backward pass, and the gradients that they fill, by the name of their input.

    `mixed` (b n h m) is the gradient of the mixed addresses: it makes those of e1_weights and of
    e1_addresses by one matrix product each. Those of e2 keys and values are per head, b h m l e.
    """
    b, h, n, m = x.sizes
    blocks, known = _plan(x, precision)
    make = outs.stats.new_empty
    given = {name: getattr(x, name) for name in (*WRITTEN, *PER_HEAD)}
    grads: dict[str, Any] = {
        name: None if tensor is None else torch.empty_like(tensor, dtype=torch.float32)
        for name, tensor in given.items()
    }
    for name in PER_HEAD:
        grads[name] = None if given[name] is None else make(b, h, *given[name].shape[2:])
    grads["mixed"] = None if x.e1_weights is None else make(b, n, h, m)
    known |= _collected(x, above, "d_") | {f"d_{name}": grad for name, grad in grads.items()}
    known |= {"stats": outs.stats, "n2_factors": make(b, h, n, m)}
    known |= {"slot_means": make(b, h, n, m) if x.conditional else None}
    known |= {"deltas": deltas(outs, above), "entropy_rows": entropy_rows(x, above.entropies)}
    rows, columns = -(-n // blocks.n), -(-m // blocks.m)
    calls = [
        _call(sources_kernel, (rows, b * h), known, blocks.a_sources),
        _call(targets_kernel, (columns, b * h), known, blocks.a_inner),
    ]
    if x.e2_addresses is not None and _rows(x.e2_addresses) > 0:
        grid = (columns, -(-x.widths[2] // blocks.a), b * _rows(x.e2_addresses))
        calls.append(_call(addresses_kernel, grid, known, blocks.a))
    return calls, grads


def forward(x: KernelInputs) -> KernelOuts:
    calls, outs = plan_forward(as_kernels_read(x), precision())
    for call in calls:
        call.run()
    return outs._replace(entropies=weighted_entropies(x, outs.stats))


def backward(x: KernelInputs, outs: KernelOuts, above: KernelOuts) -> KernelInputs:
    calls, found = plan_backward(as_kernels_read(x), outs, above, precision())
    for call in calls:
        call.run()
    mixed = found.pop("mixed")
    if x.e1_weights is not None and x.e1_addresses is not None:
        both = mixture_grads(x.e1_weights, x.e1_addresses, *beside(x), mixed)
        found["e1_weights"], found["e1_addresses"] = both
    if x.own_weights is not None and x.e2_addresses is not None:
        both = mixture_grads(x.own_weights, x.e2_addresses, *beside(x), found["e2_addresses"])
        found["own_weights"], found["e2_addresses"] = both
    for name, grad in found.items():
        tensor = getattr(x, name)
        if grad is not None:
            one_set = name in PER_HEAD and tensor.shape[1] == 1  # of keys for all heads
            found[name] = (grad.sum(dim=1, keepdim=True) if one_set else grad).to(tensor.dtype)
    return x._replace(**found)


def weighted_entropies(x: KernelInputs, stats: Tensor) -> Tensor:
    """The two weighted sums over rows, from the entropies that the kernel left in `stats`."""
    found = [stats.new_zeros(()), stats.new_zeros(())]
    if x.entropy_weights is not None:
        for i, present in enumerate((x.e1_weights is not None, x.n1_queries is not None)):
            if present:
                found[i] = (stats[..., 2 + 2 * i].sum(dim=1) * x.entropy_weights).sum()
    return torch.stack(found)


def entropy_rows(x: KernelInputs, grads: Tensor | None) -> Tensor | None:
    """Gradients of every row's two entropies, (2, b, n)."""
    if x.entropy_weights is None:
        return None
    b, _, n, _ = x.sizes
    above = x.entropy_weights.new_zeros(2) if grads is None else grads
    return (above[:, None, None] * x.entropy_weights.expand(b, n)).contiguous()


def deltas(outs: KernelOuts, above: KernelOuts) -> Tensor:
    """Sum of outputs times their gradients, from (b, n, h, width) to (b, h, n)."""
    found = [(out * grad).sum(dim=-1) for out, grad in zip(outs[:3], above[:3])]
    return torch.stack(found).sum(dim=0).transpose(1, 2).contiguous()
