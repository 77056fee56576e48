"""The C kernels on whole tensors: sizes, pointers and strides."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from graph_machine.ops.fused.inputs import (
    STATS,
    AttendGrads,
    AttendInputs,
    FactorGrads,
    FactorInputs,
    ReferGrads,
    ReferInputs,
    empty_grads,
)
from graph_machine.ops.fused.native import Pointer, kernels, pointer, work


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


def _factors(inputs: FactorInputs) -> Any:
    b, h, n, m = inputs.sizes
    d = 0 if inputs.queries is None else inputs.queries.shape[-1]
    k = 0 if inputs.e1_weights is None else inputs.e1_weights.shape[-1]
    mask, weights = inputs.mask, inputs.entropy_weights
    return _Factors(
        *(b, h, n, k, m, d),
        *(_node_major(inputs.e1_weights), _node_major(inputs.edge_temps)),
        *(head_major(inputs.queries), head_major(inputs.keys)),
        pointer(inputs.addresses),
        *(None if x is None else x.data_ptr() for x in (mask, weights)),
        *(*_strides(mask), *_strides(weights)),
        *(inputs.eps, inputs.logit_space),
    )


def _factor_grads(grads: FactorGrads, entropy_grads: Tensor | None) -> Any:
    slopes = (0.0, 0.0) if entropy_grads is None else entropy_grads.tolist()
    return _FactorGrads(
        *(_node_major(grads.e1_weights), _node_major(grads.edge_temps)),
        *(head_major(grads.queries), head_major(grads.keys)),
        pointer(grads.addresses),
        *slopes,
    )


def _attend(inputs: AttendInputs) -> Any:
    v, a = inputs.widths
    e = 0 if inputs.e2_queries is None else inputs.e2_queries.shape[-1]
    slots = 0 if inputs.own_weights is None else inputs.own_weights.shape[-1]
    return _Attend(*(v, e, slots, a), *_attend_tensors(inputs))


def _attend_tensors(x: AttendInputs | AttendGrads) -> tuple[Any, ...]:
    heads = (head_major(x.values), head_major(x.e2_queries), head_major(x.e2_keys))
    return *heads, _node_major(x.own_weights), pointer(x.e2_addresses)


def _entropy_sums(inputs: FactorInputs) -> Tensor | None:
    """Where the kernels add up the entropies of each graph, if they are asked for."""
    if inputs.entropy_weights is None:
        return None
    return torch.zeros(inputs.sizes[0], 2, dtype=torch.float64)


def _summed(sums: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros(2) if sums is None else sums.sum(dim=0).to(like.dtype)


def _serves_attend(inputs: AttendInputs) -> Any:
    """The kernels; where addresses are mixed (pre-aggregated), for graphs not too large."""
    size = 0 if inputs.e2_addresses is None else inputs.e2_addresses[0].numel()
    return kernels(inputs.values, size)


def attend(factors: FactorInputs, inputs: AttendInputs) -> tuple[Tensor, ...] | None:
    """Outputs, addresses, entropies, stats; None where the kernels do not serve."""
    lib = _serves_attend(inputs)
    if lib is None:
        return None
    (b, h, n, _), (v, a) = factors.sizes, inputs.widths
    like = inputs.values
    outs, addresses = like.new_empty(b, n, h, v), like.new_empty(b, n, h, a)
    stats, sums = like.new_empty(b, h, n, STATS), _entropy_sums(factors)
    x, y = _factors(factors), _attend(inputs)
    room = work(lib.gm_attend_work(ctypes.byref(x), ctypes.byref(y)), like)
    lib.gm_attend(
        *(ctypes.byref(x), ctypes.byref(y)),
        *(outs.data_ptr(), addresses.data_ptr(), stats.data_ptr(), pointer(sums)),
        room.data_ptr(),
        _threads(),
    )
    return outs, addresses, _summed(sums, like), stats


def attend_backward(
    factors: FactorInputs,
    inputs: AttendInputs,
    stats: Tensor,
    out_grads: Tensor,
    address_grads: Tensor | None,
    entropy_grads: Tensor | None,
) -> tuple[FactorGrads, AttendGrads] | None:
    lib = _serves_attend(inputs)
    if lib is None:
        return None
    grads, rest = empty_grads(FactorGrads, factors), empty_grads(AttendGrads, inputs)
    x, y = _factors(factors), _attend(inputs)
    room = work(lib.gm_attend_work(ctypes.byref(x), ctypes.byref(y)), inputs.values)
    out_grads = rows(out_grads)
    address_grads = None if address_grads is None else address_grads.contiguous()
    lib.gm_attend_backward(
        *(ctypes.byref(x), ctypes.byref(y)),
        *(stats.data_ptr(), ctypes.byref(_node_major(out_grads)), pointer(address_grads)),
        ctypes.byref(_factor_grads(grads, entropy_grads)),
        ctypes.byref(_AttendGrads(*_attend_tensors(rest))),
        *(room.data_ptr(), _threads()),
    )
    return grads, rest


def _serves_refer(inputs: ReferInputs) -> Any:
    """The kernels, for graphs whose values are not too many."""
    m, slots, a = inputs.addresses.shape[1:]
    size = m * slots * (a + inputs.values.shape[-1])
    return kernels(inputs.queries, size)


def _refer(inputs: ReferInputs) -> Any:
    u, _, slots, d = inputs.keys.shape[1:]
    _, e, a = inputs.widths
    sizes = (u, slots, d, e, a, inputs.n2_values.shape[-1])
    return _Refer(*sizes, *_refer_tensors(inputs), inputs.conditional)


def _refer_tensors(x: ReferInputs | ReferGrads) -> tuple[Any, ...]:
    heads = (_node_major(x.queries), head_major(x.keys), head_major(x.values))
    return *heads, head_major(x.n2_values), pointer(x.addresses)


def refer(factors: FactorInputs, inputs: ReferInputs) -> tuple[Tensor, ...] | None:
    """Addresses, what n2 and e2 carry, entropies, stats; None where the kernels do not serve."""
    lib = _serves_refer(inputs)
    if lib is None:
        return None
    (b, h, n, _), (_, e, a) = factors.sizes, inputs.widths
    like = inputs.queries
    addresses, e2 = like.new_empty(b, n, h, a), like.new_empty(b, n, h, e)
    n2 = like.new_empty(b, n, h, inputs.n2_values.shape[-1])
    stats, sums = like.new_empty(b, h, n, STATS), _entropy_sums(factors)
    x, y = _factors(factors), _refer(inputs)
    room = work(lib.gm_refer_work(ctypes.byref(x), ctypes.byref(y)), like)
    outs = _ReferOuts(addresses.data_ptr(), e2.data_ptr(), n2.data_ptr())
    lib.gm_refer(
        *(ctypes.byref(x), ctypes.byref(y), ctypes.byref(outs)),
        *(stats.data_ptr(), pointer(sums), room.data_ptr(), _threads()),
    )
    return addresses, n2, e2, _summed(sums, like), stats


def refer_backward(
    factors: FactorInputs,
    inputs: ReferInputs,
    outs: tuple[Tensor, Tensor, Tensor],
    stats: Tensor,
    out_grads: tuple[Tensor, Tensor, Tensor],
    entropy_grads: Tensor | None,
) -> tuple[FactorGrads, ReferGrads] | None:
    """`outs` and `out_grads` are of addresses, n2 and e2."""
    lib = _serves_refer(inputs)
    if lib is None:
        return None
    grads, rest = empty_grads(FactorGrads, factors), empty_grads(ReferGrads, inputs)
    x, y = _factors(factors), _refer(inputs)
    room = work(lib.gm_refer_work(ctypes.byref(x), ctypes.byref(y)), inputs.queries)
    addresses, n2, e2 = (grad.contiguous() for grad in out_grads)
    lib.gm_refer_backward(
        *(ctypes.byref(x), ctypes.byref(y)),
        ctypes.byref(_ReferOuts(outs[0].data_ptr(), outs[2].data_ptr(), outs[1].data_ptr())),
        ctypes.byref(_ReferOuts(addresses.data_ptr(), e2.data_ptr(), n2.data_ptr())),
        stats.data_ptr(),
        ctypes.byref(_factor_grads(grads, entropy_grads)),
        ctypes.byref(_ReferGrads(*_refer_tensors(rest))),
        *(room.data_ptr(), _threads()),
    )
    return grads, rest


def sharpen(addresses: Tensor, temps: Tensor, mask: Tensor | None, eps: float, out: Tensor) -> bool:
    """Fill `out`; False where the kernels do not serve."""
    lib = kernels(addresses)
    if lib is None:
        return False
    b, n, k, m = addresses.shape
    room = work(lib.gm_sharpen_work(m), addresses)
    lib.gm_sharpen(
        *(b, n, k, m, pointer(addresses), pointer(temps), pointer(mask)),
        *(*_strides(mask), eps, pointer(out), pointer(room)),
        _threads(),
    )
    return True


def sharpen_backward(
    grads: Tensor,
    addresses: Tensor,
    temps: Tensor,
    outs: Tensor,
    eps: float,
    address_grads: Tensor,
    temp_grads: Tensor,
) -> bool:
    lib = kernels(addresses)
    if lib is None:
        return False
    m = addresses.shape[-1]
    lib.gm_sharpen_backward(
        *(addresses.numel() // m, m, pointer(grads), pointer(addresses), pointer(temps)),
        *(pointer(outs), eps, pointer(address_grads), pointer(temp_grads)),
        _threads(),
    )
    return True


def rows(tensor: Tensor) -> Tensor:
    """As it is where its last axis is contiguous."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] == 1 else tensor.contiguous()
