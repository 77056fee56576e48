"""Address spaces: the ways of storing where edges point, behind one interface."""

from graph_machine.ops.referral.sparse import SparseSettings
from graph_machine.registry import Registry
from graph_machine.spaces.base import Addresses, AddressSpace, AttentionOut, Context, ReferralOut
from graph_machine.spaces.compressed import CompressedAddresses, CompressedSpace
from graph_machine.spaces.dense import (
    DenseAddresses,
    DenseSpace,
    LogitAddresses,
    LogitSpace,
    attend_without_edges,
)
from graph_machine.spaces.hard import HardAddresses, HardSpace
from graph_machine.spaces.sparse import SparseAddresses, SparseSpace

SPACES: Registry[type[AddressSpace]] = Registry("address space")
SPACES.add("weight", DenseSpace)
SPACES.add("logit", LogitSpace)
SPACES.add("sparse", SparseSpace)
SPACES.add("compressed", CompressedSpace)
SPACES.add("hard", HardSpace)

__all__ = [
    "SPACES",
    "AddressSpace",
    "Addresses",
    "AttentionOut",
    "CompressedAddresses",
    "CompressedSpace",
    "Context",
    "DenseAddresses",
    "DenseSpace",
    "HardAddresses",
    "HardSpace",
    "LogitAddresses",
    "LogitSpace",
    "ReferralOut",
    "SparseAddresses",
    "SparseSettings",
    "SparseSpace",
    "attend_without_edges",
]
