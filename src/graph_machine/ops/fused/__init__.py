"""Fast dense paths: chunk by chunk inside the cache, recomputed in the backward pass.

Every op here takes and returns whole tensors; within, it works on a few graphs (or a few source
nodes of one large graph) at a time, so that what the paper's listing keeps as b x h x n x m x l
numbers exists for one chunk only. Nothing but inputs and small outputs is kept for backward.
"""

from graph_machine.ops.fused.library import fused_attention, fused_referral, fused_sharpen

__all__ = ["fused_attention", "fused_referral", "fused_sharpen"]
