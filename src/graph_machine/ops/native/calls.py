"""The C kernels of attention and referral on whole tensors."""

import ctypes
from ctypes import byref

import torch
from torch import Tensor

from graph_machine.ops.backend import Implementation
from graph_machine.ops.core import KernelInputs, KernelOuts, empty_outs
from graph_machine.ops.native import kernels, loaded, pointer, work
from graph_machine.ops.native.structs import (
    Attend,
    AttendGrads,
    FactorGrads,
    Factors,
    Heads,
    Refer,
    ReferGrads,
    ReferOuts,
)


def head_major(tensor: Tensor | None) -> Heads:
    """(b, h, n, ...) with contiguous rows."""
    if tensor is None:
        return Heads(None, 0, 0, 0)
    graph, head, node = tensor.stride()[:3]
    return Heads(tensor.data_ptr(), graph, head, node)


def node_major(tensor: Tensor | None) -> Heads:
    """(b, n, h, ...) with contiguous rows."""
    if tensor is None:
        return Heads(None, 0, 0, 0)
    graph, node, head = tensor.stride()[:3]
    return Heads(tensor.data_ptr(), graph, head, node)


def rows(tensor: Tensor) -> Tensor:
    """As it is where its last axis is contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


def strides(tensor: Tensor | None) -> tuple[int, int]:
    """Of the graph and source axes; an axis of size 1 broadcasts."""
    if tensor is None:
        return 0, 0
    graph, source = tensor.stride()[:2]
    return (graph if tensor.shape[0] > 1 else 0), (source if tensor.shape[1] > 1 else 0)


def _width(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.shape[-1]


NONE = (ctypes.c_int * 1)()  # what `given` points at where there is nothing given


def _factors(x: KernelInputs) -> Factors:
    b, h, n, m = x.sizes
    starts = (None, None)
    if x.packed is not None:
        b, n, m, starts = x.packed.graphs, x.packed.largest, x.packed.largest, x.packed.pointers
    return Factors(
        *(b, h, n, x.address_slots[0], m, _width(x.n1_queries)),
        *_factor_tensors(x),
        *(ctypes.addressof(NONE) if x.given is None else pointer(x.given), _width(x.given)),
        x.empty,
        *(None if y is None else y.data_ptr() for y in (x.mask, x.entropy_weights)),
        *(*strides(x.mask), *strides(x.entropy_weights)),
        *(x.eps, x.given_scale, x.logit_space, *starts),
    )


def _factor_tensors(x: KernelInputs) -> tuple[Heads | int | None, ...]:
    edge = (node_major(x.e1_weights), node_major(x.edge_temps))
    return *edge, head_major(x.n1_queries), head_major(x.n2_keys), pointer(x.e1_addresses)


def _factor_grads(grads: KernelInputs, entropy_grads: Tensor | None) -> FactorGrads:
    slopes = (0.0, 0.0) if entropy_grads is None else entropy_grads.tolist()
    return FactorGrads(*_factor_tensors(grads), *slopes)


def _attend(x: KernelInputs) -> Attend:
    v, _, a = x.widths
    return Attend(v, _width(x.e2_queries), x.address_slots[1], a, *_attend_tensors(x))


def _attend_tensors(x: KernelInputs) -> tuple[Heads | int | None, ...]:
    heads = (head_major(x.n2_values), node_major(x.e2_queries), head_major(x.e2_keys))
    return *heads, node_major(x.own_weights), pointer(x.e2_addresses)


def _refer(x: KernelInputs) -> Refer:
    assert x.e2_keys is not None
    u, _, slots, d = x.e2_keys.shape[1:]
    v, e, a = x.widths
    return Refer(u, slots, d, e, a, v, *_refer_tensors(x), x.conditional)


def _refer_tensors(x: KernelInputs) -> tuple[Heads | int | None, ...]:
    heads = (node_major(x.e2_queries), head_major(x.e2_keys), head_major(x.e2_values))
    return *heads, head_major(x.n2_values), pointer(x.e2_addresses)


def _refer_outs(x: KernelOuts) -> ReferOuts:
    return ReferOuts(pointer(x.addresses), pointer(x.e2), pointer(x.features))


def serves(x: KernelInputs) -> bool:
    """Where addresses are collected, graphs should not be too large."""
    m, (_, c, a), slots = x.sizes[3], x.widths, x.address_slots[1]
    m = m if x.packed is None else x.packed.largest
    size = m * slots * (a + c)
    return kernels(x.n2_values, size) is not None


def forward(inputs: KernelInputs) -> KernelOuts:
    lib, outs, threads = loaded(), empty_outs(inputs), torch.get_num_threads()
    x, like = _factors(inputs), inputs.n2_values
    sums = None  # entropies of each graph
    if inputs.entropy_weights is not None:
        sums = torch.zeros(inputs.sizes[0], 2, dtype=torch.float64)
    if inputs.e2_values is None:
        y = _attend(inputs)
        room = work(lib.gm_attend_work(byref(x), byref(y)), like)
        lib.gm_attend(
            *(byref(x), byref(y), pointer(outs.features), pointer(outs.addresses)),
            *(pointer(outs.stats), pointer(sums), room.data_ptr(), threads),
        )
    else:
        z = _refer(inputs)
        room = work(lib.gm_refer_work(byref(x), byref(z)), like)
        lib.gm_refer(
            *(byref(x), byref(z), byref(_refer_outs(outs))),
            *(pointer(outs.stats), pointer(sums), room.data_ptr(), threads),
        )
    entropies = like.new_zeros(2) if sums is None else sums.sum(dim=0).to(like.dtype)
    return outs._replace(entropies=entropies)


def backward(inputs: KernelInputs, outs: KernelOuts, above: KernelOuts) -> KernelInputs:
    lib, grads, threads = loaded(), inputs.empty_grads(), torch.get_num_threads()
    x, like = _factors(inputs), inputs.n2_values
    if inputs.e1_addresses is inputs.e2_addresses:
        grads = grads._replace(e2_addresses=grads.e1_addresses)
    factors = _factor_grads(grads, above.entropies)
    if inputs.e2_values is None:
        y, features = _attend(inputs), rows(above.features)
        addresses = above.addresses.contiguous() if inputs.own_weights is not None else None
        room = work(lib.gm_attend_work(byref(x), byref(y)), like)
        lib.gm_attend_backward(
            *(byref(x), byref(y), pointer(outs.stats), byref(node_major(features))),
            *(pointer(addresses), byref(factors), byref(AttendGrads(*_attend_tensors(grads)))),
            *(room.data_ptr(), threads),
        )
        return grads
    z = _refer(inputs)
    features, e2, addresses = (grad.contiguous() for grad in above[:3])
    given = above._replace(features=features, e2=e2, addresses=addresses)
    room = work(lib.gm_refer_work(byref(x), byref(z)), like)
    lib.gm_refer_backward(
        *(byref(x), byref(z), byref(_refer_outs(outs)), byref(_refer_outs(given))),
        *(pointer(outs.stats), byref(factors), byref(ReferGrads(*_refer_tensors(grads)))),
        *(room.data_ptr(), threads),
    )
    return grads


ATTEND = Implementation(forward, backward, serves)
