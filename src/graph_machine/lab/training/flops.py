"""Floating-point operations of a training step: counted, not estimated.

Matrix products of the forward and the backward pass are counted, two operations per
multiply-add, as the reference implementation does them; elementwise work, softmax, norms, gathers
and the optimiser are not. So the count depends only on the model, not on backend,
precision, recomputation or machine.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from graph_machine.config import InputSpec, ModelConfig
from graph_machine.errors import ConfigError
from graph_machine.graphs import InputGraph
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import Task, make_task, task_of
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.generated import GeneratedTask
from graph_machine.lab.training.schedule import rounds_range
from graph_machine.lab.training.trainer import policy_term
from graph_machine.models import GraphMachine
from graph_machine.models.counting import count_by_depth

SIZES_FROM = 8  # training steps whose batches show how large graphs are, if the spec does not


def flops_per_step(config: ExperimentConfig, task: Task | None = None) -> int | None:
    """Of one optimiser step.

    Where graphs come with the data, the mean over a few training batches, with their padding:
    those of `task`, or of a task that generates its examples. None if neither gives the sizes.
    """
    spec = task_of(config.task).spec
    if spec.graph == "given" and config.model.body != "graph-machine":
        # Messages are sent along the edges that are there; a Graph Machine works on every slot.
        counts = [_count(config.model, spec, b.inputs) for b in some_batches(config, task)]
        return round(sum(counts) / len(counts)) if counts else None
    if spec.num_nodes is not None:
        sizes: list[int | None] = [None]
    else:
        sizes = [batch.num_nodes for batch in some_batches(config, task)]
    if not sizes:
        return None
    return round(sum(_per_step(config, spec, nodes) for nodes in sizes) / len(sizes))


def some_batches(config: ExperimentConfig, task: Task | None) -> Iterator[Batch]:
    """Some training batches of the task, or of one that generates its examples; else none."""
    if task is None and isinstance(task_of(config.task), GeneratedTask):
        task = make_task(config.task)
    if task is not None:
        for number in range(SIZES_FROM):
            step = number * config.train.steps // SIZES_FROM
            yield task.batch(step, config.train.batch_size, 0, step / config.train.steps)


def _per_step(config: ExperimentConfig, spec: InputSpec, nodes: int | None) -> int:
    """Of a batch of graphs with `nodes` nodes; None: as many as the spec says."""
    if not config.model.has_core:
        return config.train.batch_size * flops_per_example(config.model, spec, nodes)
    once, free, learning = core_flops(config.model, spec, nodes)
    total = 0.0
    for step in range(config.train.steps):
        choices = rounds_range(step, config)
        for rounds in choices:
            through = min(rounds, config.train.grad_rounds or rounds)
            total += (once + through * learning + (rounds - through) * free) / len(choices)
    return round(config.train.batch_size * total / config.train.steps)


@lru_cache(maxsize=256)
def core_flops(
    config: ModelConfig, spec: InputSpec, nodes: int | None = None
) -> tuple[int, int, int]:
    """Of one example: all but the rounds, one round without gradients, one with them."""

    def count(rounds: int, grad_rounds: int) -> int:
        call = {"rounds": rounds, "grad_rounds": grad_rounds}
        return count_by_depth(config, lambda short: _measure(short, spec, nodes, **call))

    one = count(1, 1)
    learning, free = count(2, 2) - one, count(2, 1) - one
    return one - learning, free, learning


@lru_cache(maxsize=256)
def flops_per_example(config: ModelConfig, spec: InputSpec, nodes: int | None = None) -> int:
    """Forward and backward for one example; of a recurrent core, with all of its rounds.

    `nodes` says how many nodes a graph has where the spec does not.

    The first layers are measured and the rest follows from the schedule. In the sparse and hard
    spaces the work depends on what is chosen: there it is that of a new model, with the sparsity
    that belongs to the end of training.
    """
    if config.address_space in ("sparse", "hard"):
        return _measure(config, spec, nodes)
    return count_by_depth(config, lambda short: _measure(short, spec, nodes))


def _measure(config: ModelConfig, spec: InputSpec, nodes: int | None = None, **rounds: int) -> int:
    n = spec.num_nodes if nodes is None else nodes
    if n is None:
        raise ConfigError("flops_per_example: this spec's graphs have any size; give nodes=.")
    return _count(config, spec, _blank_inputs(config, spec, n), **rounds)


def _count(config: ModelConfig, spec: InputSpec, inputs: dict[str, Any], **rounds: int) -> int:
    # Layers draw their weights, and some spaces draw choices: not from the caller's numbers.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        model = GraphMachine(config, spec).train()
        model.backend = "reference"
        model.set_progress(1.0)
        # The counter does not know torch's fused attention on a CPU (in GPS): plain products.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            out = model(**inputs, **rounds)
            losses = out.logits.sum(dim=(1, 2))
            policy = None if out.state.addresses is None else out.state.addresses.policy
            chosen = 0.0 if policy is None else policy_term(policy, losses, 1.0)
            (losses.sum() + chosen).backward()
    return counter.get_total_flops()


def _blank_inputs(config: ModelConfig, spec: InputSpec, n: int) -> dict[str, Any]:
    """One example of zeros. Where edges point changes no count: all of them to the first node."""
    graph = None
    width = max(1, config.num_edges)
    if spec.graph == "given" and (config.num_edges or spec.output == "slot"):
        slots = torch.zeros(n, width, dtype=torch.long)
        features = torch.zeros(n, width, spec.edge_features) if spec.edge_features else None
        graph = InputGraph(slots, slots, spec.num_edge_categories, features)
    return {
        "tokens": None if spec.num_tokens is None else torch.zeros(1, n, dtype=torch.long),
        "graph": graph,
        "features": torch.zeros(1, n, spec.node_features) if spec.node_features else None,
        "pairs": torch.zeros(1, 1, 2, dtype=torch.long) if spec.output == "pair" else None,
    }
