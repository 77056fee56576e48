"""Floating-point operations of a training step, counted and not estimated.

Matrix products of the forward and the backward pass are counted, two operations per
multiply-add, as the reference implementation does them; elementwise work, softmax, norms, gathers
and the optimiser are not. So the count belongs to what a model computes, whatever backend,
precision, recomputation or machine carried it out.
"""

from functools import lru_cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from graph_machine.config import ExperimentConfig, InputSpec, ModelConfig
from graph_machine.graphs import InputGraph
from graph_machine.models import GraphMachine
from graph_machine.models.counting import count_by_depth
from graph_machine.tasks.base import task_of
from graph_machine.training.losses import policy_term
from graph_machine.training.schedule import rounds_range


def flops_per_step(config: ExperimentConfig) -> int | None:
    """Of one optimiser step; None where only the data says how large a graph is."""
    spec = task_of(config.task).spec
    each = flops_per_example(config.model, spec)
    if each is None or not config.model.has_core:
        return None if each is None else config.train.batch_size * each
    once, free, learning = core_flops(config.model, spec)
    total = 0.0
    for step in range(config.train.steps):
        choices = rounds_range(step, config)
        for rounds in choices:
            through = min(rounds, config.train.grad_rounds or rounds)
            total += (once + through * learning + (rounds - through) * free) / len(choices)
    return round(config.train.batch_size * total / config.train.steps)


@lru_cache(maxsize=256)
def core_flops(config: ModelConfig, spec: InputSpec) -> tuple[int, int, int]:
    """Of one example: all but the rounds, one round without gradients, one with them."""

    def count(rounds: int, grad_rounds: int) -> int:
        call = {"rounds": rounds, "grad_rounds": grad_rounds}
        return count_by_depth(config, lambda short: _measure(short, spec, **call))

    one = count(1, 1)
    learning, free = count(2, 2) - one, count(2, 1) - one
    return one - learning, free, learning


@lru_cache(maxsize=256)
def flops_per_example(config: ModelConfig, spec: InputSpec) -> int | None:
    """Forward and backward for one example; of a recurrent core, with all of its rounds.

    The first layers are measured and the rest follows from the schedule. In the sparse and hard
    spaces the work depends on what is chosen: there it is that of a new model, with the sparsity
    that belongs to the end of training.
    """
    if spec.num_nodes is None or spec.num_tokens is None or spec.edge_features:
        return None
    if config.address_space in ("sparse", "hard"):
        return _measure(config, spec)
    return count_by_depth(config, lambda short: _measure(short, spec))


def _measure(config: ModelConfig, spec: InputSpec, **rounds: int) -> int:
    # Layers draw their weights, and some spaces draw choices: not from the caller's numbers.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        model = GraphMachine(config, spec).train()
        model.backend = "reference"
        model.set_progress(1.0)
        assert spec.num_nodes is not None
        tokens = torch.zeros(1, spec.num_nodes, dtype=torch.long)
        graph = None
        if spec.graph == "given" and config.num_edges:
            # Where edges point changes no count: all of them to the first node.
            slots = torch.zeros(spec.num_nodes, config.num_edges, dtype=torch.long)
            graph = InputGraph(slots, slots, spec.num_edge_categories)
        with FlopCounterMode(display=False) as counter:
            out = model(tokens, graph, **rounds)
            losses = out.logits.sum(dim=(1, 2))
            chosen = policy_term(out.state, losses, 1.0)
            (losses.sum() + (0.0 if chosen is None else chosen)).backward()
    return counter.get_total_flops()
