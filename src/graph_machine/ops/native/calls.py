"""The C kernels on whole tensors: sizes, pointers and strides."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.backend import Implementation
from graph_machine.ops.core import (
    AttendInputs,
    AttendOuts,
    FactorInputs,
    ReferInputs,
    ReferOuts,
    SharpenInputs,
    SharpenOuts,
    empty_attended,
    empty_referred,
    empty_sharpened,
)
from graph_machine.ops.native import Pointer, kernels, loaded, pointer, work


class Heads(ctypes.Structure):
    """Rows of a tensor through strides of graph, head and node."""

    _fields_ = [
        ("at", Pointer),
        ("graph", ctypes.c_long),
        ("head", ctypes.c_long),
        ("node", ctypes.c_long),
    ]


def struct(name: str, **kinds: Any) -> Any:
    """A struct from `one__two=type, three=other`: fields of one type are joined by `__`."""
    fields = [(field, kind) for names, kind in kinds.items() for field in names.split("__")]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


_long, _real = ctypes.c_long, ctypes.c_float
# In the order of factors.h, attend.c and refer.c.
_Factors = struct(
    "Factors",
    b__h__n__k__m__d=_long,
    e1_weights__edge_temps__queries__keys=Heads,
    addresses__mask__entropy_weights=Pointer,
    mask_graph__mask_source__weight_graph__weight_source=_long,
    eps=_real,
    logit_space=ctypes.c_int,
)
_FactorGrads = struct(
    "FactorGrads",
    e1_weights__edge_temps__queries__keys=Heads,
    addresses=Pointer,
    edge_slope__node_slope=_real,
)
_Attend = struct(
    "Attend",
    v__e__l__a=_long,
    values__e2_queries__e2_keys__own_weights=Heads,
    e2_addresses=Pointer,
)
_AttendGrads = struct(
    "AttendGrads", values__e2_queries__e2_keys__own_weights=Heads, e2_addresses=Pointer
)
_Refer = struct(
    "Refer",
    u__l__d__e__a__v=_long,
    queries__keys__values__n2_values=Heads,
    addresses=Pointer,
    conditional=ctypes.c_int,
)
_ReferGrads = struct("ReferGrads", queries__keys__values__n2_values=Heads, addresses=Pointer)
_ReferOuts = struct("ReferOuts", addresses__e2__n2=Pointer)


def _threads() -> int:
    return torch.get_num_threads()


def head_major(tensor: Tensor | None) -> Heads:
    """(b, h, n, ...) with contiguous rows."""
    if tensor is None:
        return Heads(None, 0, 0, 0)
    graph, head, node = tensor.stride()[:3]
    return Heads(tensor.data_ptr(), graph, head, node)


def _node_major(tensor: Tensor | None) -> Heads:
    """(b, n, h, ...) with contiguous rows."""
    if tensor is None:
        return Heads(None, 0, 0, 0)
    graph, node, head = tensor.stride()[:3]
    return Heads(tensor.data_ptr(), graph, head, node)


def _strides(tensor: Tensor | None) -> tuple[int, int]:
    """Of the graph and source axes; an axis of size 1 broadcasts."""
    if tensor is None:
        return 0, 0
    graph, source = tensor.stride()[:2]
    return (graph if tensor.shape[0] > 1 else 0), (source if tensor.shape[1] > 1 else 0)


def _factors(x: FactorInputs) -> Any:
    b, h, n, m = x.sizes
    d = 0 if x.n1_queries is None else x.n1_queries.shape[-1]
    k = 0 if x.e1_weights is None else x.e1_weights.shape[-1]
    return _Factors(
        *(b, h, n, k, m, d),
        *_factor_tensors(x),
        *(None if y is None else y.data_ptr() for y in (x.mask, x.entropy_weights)),
        *(*_strides(x.mask), *_strides(x.entropy_weights)),
        *(x.eps, x.logit_space),
    )


def _factor_tensors(x: FactorInputs) -> tuple[Any, ...]:
    edge = (_node_major(x.e1_weights), _node_major(x.edge_temps))
    return *edge, head_major(x.n1_queries), head_major(x.n2_keys), pointer(x.e1_addresses)


def _factor_grads(grads: FactorInputs, entropy_grads: Tensor | None) -> Any:
    slopes = (0.0, 0.0) if entropy_grads is None else entropy_grads.tolist()
    return _FactorGrads(*_factor_tensors(grads), *slopes)


def _entropy_sums(inputs: FactorInputs) -> Tensor | None:
    """Where the kernels add up the entropies of each graph, if they are asked for."""
    if inputs.entropy_weights is None:
        return None
    return torch.zeros(inputs.sizes[0], 2, dtype=torch.float64)


def _summed(sums: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros(2) if sums is None else sums.sum(dim=0).to(like.dtype)


def _attend(x: AttendInputs) -> Any:
    v, a = x.widths
    e = 0 if x.e2_queries is None else x.e2_queries.shape[-1]
    slots = 0 if x.own_weights is None else x.own_weights.shape[-1]
    return _Attend(*(v, e, slots, a), *_attend_tensors(x))


def _attend_tensors(x: AttendInputs) -> tuple[Any, ...]:
    heads = (head_major(x.n2_values), head_major(x.e2_queries), head_major(x.e2_keys))
    return *heads, _node_major(x.own_weights), pointer(x.e2_addresses)


def serves_attend(inputs: AttendInputs) -> bool:
    """Where addresses are mixed (pre-aggregated), graphs should not be too large."""
    size = 0 if inputs.e2_addresses is None else inputs.e2_addresses[0].numel()
    return kernels(inputs.n2_values, size) is not None


def attend(inputs: AttendInputs) -> AttendOuts:
    lib, outs, sums = loaded(), empty_attended(inputs), _entropy_sums(inputs)
    x, y = _factors(inputs), _attend(inputs)
    room = work(lib.gm_attend_work(ctypes.byref(x), ctypes.byref(y)), inputs.n2_values)
    lib.gm_attend(
        *(ctypes.byref(x), ctypes.byref(y)),
        *(pointer(outs.features), pointer(outs.addresses), pointer(outs.stats), pointer(sums)),
        *(room.data_ptr(), _threads()),
    )
    return outs._replace(entropies=_summed(sums, inputs.n2_values))


def attend_backward(inputs: AttendInputs, outs: AttendOuts, above: AttendOuts) -> AttendInputs:
    lib, grads = loaded(), inputs.empty_grads()
    x, y = _factors(inputs), _attend(inputs)
    room = work(lib.gm_attend_work(ctypes.byref(x), ctypes.byref(y)), inputs.n2_values)
    features = rows(above.features)
    addresses = None if above.addresses is None else above.addresses.contiguous()
    lib.gm_attend_backward(
        *(ctypes.byref(x), ctypes.byref(y)),
        *(pointer(outs.stats), ctypes.byref(_node_major(features)), pointer(addresses)),
        ctypes.byref(_factor_grads(grads, above.entropies)),
        ctypes.byref(_AttendGrads(*_attend_tensors(grads))),
        *(room.data_ptr(), _threads()),
    )
    return grads


def _refer(x: ReferInputs) -> Any:
    u, _, slots, d = x.e2_keys.shape[1:]
    _, e, a = x.widths
    sizes = (u, slots, d, e, a, x.n2_values.shape[-1])
    return _Refer(*sizes, *_refer_tensors(x), x.conditional)


def _refer_tensors(x: ReferInputs) -> tuple[Any, ...]:
    heads = (_node_major(x.e2_queries), head_major(x.e2_keys), head_major(x.e2_values))
    return *heads, head_major(x.n2_values), pointer(x.e2_addresses)


def _refer_outs(x: ReferOuts) -> Any:
    return _ReferOuts(pointer(x.addresses), pointer(x.e2), pointer(x.n2))


def serves_refer(inputs: ReferInputs) -> bool:
    """Graphs whose values are not too many."""
    m, slots, a = inputs.e2_addresses.shape[1:]
    size = m * slots * (a + inputs.e2_values.shape[-1])
    return kernels(inputs.n2_values, size) is not None


def refer(inputs: ReferInputs) -> ReferOuts:
    lib, outs, sums = loaded(), empty_referred(inputs), _entropy_sums(inputs)
    x, y = _factors(inputs), _refer(inputs)
    room = work(lib.gm_refer_work(ctypes.byref(x), ctypes.byref(y)), inputs.n2_values)
    lib.gm_refer(
        *(ctypes.byref(x), ctypes.byref(y), ctypes.byref(_refer_outs(outs))),
        *(pointer(outs.stats), pointer(sums), room.data_ptr(), _threads()),
    )
    return outs._replace(entropies=_summed(sums, inputs.n2_values))


def refer_backward(inputs: ReferInputs, outs: ReferOuts, above: ReferOuts) -> ReferInputs:
    lib, grads = loaded(), inputs.empty_grads()
    x, y = _factors(inputs), _refer(inputs)
    room = work(lib.gm_refer_work(ctypes.byref(x), ctypes.byref(y)), inputs.n2_values)
    above = above._replace(
        addresses=above.addresses.contiguous(), n2=above.n2.contiguous(), e2=above.e2.contiguous()
    )
    lib.gm_refer_backward(
        *(ctypes.byref(x), ctypes.byref(y)),
        *(ctypes.byref(_refer_outs(outs)), ctypes.byref(_refer_outs(above))),
        pointer(outs.stats),
        ctypes.byref(_factor_grads(grads, above.entropies)),
        ctypes.byref(_ReferGrads(*_refer_tensors(grads))),
        *(room.data_ptr(), _threads()),
    )
    return grads


def serves_sharpen(inputs: SharpenInputs) -> bool:
    return kernels(inputs.addresses) is not None


def sharpen(inputs: SharpenInputs) -> SharpenOuts:
    lib, outs = loaded(), empty_sharpened(inputs)
    b, n, k, m = inputs.addresses.shape
    mask = None if inputs.mask is None else inputs.mask.contiguous()
    room = work(lib.gm_sharpen_work(m), inputs.addresses)
    lib.gm_sharpen(
        *(b, n, k, m, pointer(inputs.addresses), pointer(inputs.temps), pointer(mask)),
        *(*_strides(mask), inputs.eps, pointer(outs.addresses), pointer(room)),
        _threads(),
    )
    return outs


def sharpen_backward(inputs: SharpenInputs, outs: SharpenOuts, above: SharpenOuts) -> SharpenInputs:
    lib, grads, m = loaded(), inputs.empty_grads(), inputs.addresses.shape[-1]
    given = above.addresses.contiguous()
    lib.gm_sharpen_backward(
        *(given.numel() // m, m, pointer(given), pointer(inputs.addresses), pointer(inputs.temps)),
        *(pointer(outs.addresses), inputs.eps, pointer(grads.addresses), pointer(grads.temps)),
        _threads(),
    )
    return grads


def rows(tensor: Tensor) -> Tensor:
    """As it is where its last axis is contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()


ATTENTION = Implementation(attend, attend_backward, serves_attend)
REFERRAL = Implementation(refer, refer_backward, serves_refer)
SHARPEN = Implementation(sharpen, sharpen_backward, serves_sharpen)
