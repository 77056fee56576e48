"""Counted operations against formulas written out by hand."""

import pytest
import torch

from graph_machine.config import InputSpec
from graph_machine.errors import ConfigError
from graph_machine.lab.conditions.budgets import config_for
from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.base import make_task, task_of
from graph_machine.lab.training import flops
from graph_machine.lab.training.flops import flops_per_example, flops_per_step


def products(*sizes: int, backward: int = 2) -> int:
    """A product of these sizes: two operations each; backward, the same for each of two inputs."""
    total = 2 * (1 + backward)
    for size in sizes:
        total *= size
    return total


def readout(config: ExperimentConfig, spec: InputSpec) -> int:
    assert spec.num_nodes is not None
    return products(spec.num_nodes, config.model.d_node, spec.num_outputs)


def node_sublayer(config: ExperimentConfig, n: int) -> int:
    """Attention with the node expert alone, and the feed-forward network."""
    m = config.model
    columns = m.num_heads * (2 * m.d_attn_key + m.d_attn_value + 1)  # the 1: a temperature
    return (
        products(n, m.d_node, columns)
        + products(m.num_heads, n, n, m.d_attn_key)
        + products(m.num_heads, n, n, m.d_attn_value)
        + products(n, m.num_heads * m.d_attn_value, m.d_node)
        + 3 * products(n, m.d_node, m.expansion * m.d_node)
    )


def edge_expert(n: int, k: int, heads: int, d_key: int) -> int:
    """Scores of own edges, and the mixture of their addresses over all nodes."""
    return products(heads, n, k, d_key) + products(heads, n, k, n)


def sharpener(n: int, k: int, d_edge: int) -> int:
    return products(n, k, d_edge)


def gm_layer(config: ExperimentConfig, n: int) -> int:
    """One edge sublayer (joint referral) and one node sublayer, both with both experts."""
    m = config.model
    k, e, key = m.num_edges, m.d_edge, m.d_ref_key
    referral = (
        products(n, m.d_node, k * (2 * key + e + 3))
        + products(n, k, e, k * 2 * (key + e))  # keys and values of e1 and e2
        + edge_expert(n, k, k, key)
        + products(k, n, n, key)  # n2 keys
        + products(k, n, n, k, key)  # e2 keys
        + products(k, n, k, e)
        + products(k, n, n, e)
        + products(k, n, n, k, e)
        + products(k, n, n, k, n)  # the addresses that are collected
        + products(n, k, e, e)
        + 3 * products(n, k, e, m.expansion * e)
    )
    attention = (
        node_sublayer(config, n)
        + products(n, m.d_node, m.num_heads)  # the temperatures of the second expert
        + products(n, k, e, m.num_heads * m.d_attn_key)
        + edge_expert(n, k, m.num_heads, m.d_attn_key)
    )
    return referral + attention + 2 * sharpener(n, k, e)


@pytest.mark.parametrize("budget", ["smoke", "cpu"])
def test_a_transformer(budget: str) -> None:
    config = config_for("transformer", budget)
    spec = task_of(config.task).spec
    expected = config.model.num_layers * node_sublayer(config, 16) + readout(config, spec)
    assert flops_per_example(config.model, spec) == expected


@pytest.mark.parametrize("box", ["2x2", "2x3"])
def test_a_layer_of_a_graph_machine(box: str) -> None:
    """The second layer and later ones: the first one's addresses need no gradient."""
    config = config_for("gm", "smoke", box)
    spec = task_of(config.task).spec
    assert spec.num_nodes is not None
    three, four = (
        flops_per_example(config.with_model(num_layers=layers).model, spec) for layers in (3, 4)
    )
    assert three is not None
    assert four is not None
    assert four - three == gm_layer(config, spec.num_nodes)


@pytest.mark.parametrize(
    ("name", "edge_sublayers"),
    [("gm", None), ("gm", 2), ("gm", 3), ("gm-compressed", None), ("gm-preaggregated", None)],
)
def test_short_models_tell_the_whole(name: str, edge_sublayers: int | None) -> None:
    base = config_for(name, "smoke").with_model(num_layers=4, num_edge_sublayers=edge_sublayers)
    spec = task_of(base.task).spec
    assert flops_per_example(base.model, spec) == flops._measure(base.model, spec)


@pytest.mark.parametrize("name", ["gm-sparse-4", "gm-hard"])
def test_spaces_that_choose_are_counted_the_same_every_time(name: str) -> None:
    config = config_for(name, "smoke")
    spec = task_of(config.task).spec
    assert flops._measure(config.model, spec) == flops._measure(config.model, spec)
    assert flops_per_step(config)


def test_more_puzzles_cost_more_and_other_ways_the_same() -> None:
    config = config_for("gm", "smoke")
    each = flops_per_step(config.with_train(batch_size=1))
    assert each
    assert flops_per_step(config) == 16 * each
    other = config.with_train(backend="reference", checkpoint_layers=True, accumulate=4)
    assert flops_per_step(other) == 16 * each


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    config = config_for("gm-hard", "smoke").with_model(d_node=20)
    with torch.no_grad():
        flops_per_step(config)
    assert torch.equal(torch.rand(3), expected)


def test_a_layer_on_graphs_that_come_with_the_data() -> None:
    config = config_for("pointers-gm", "smoke")
    spec = task_of(config.task).spec
    three, four = (
        flops_per_example(config.with_model(num_layers=layers).model, spec, 10) for layers in (3, 4)
    )
    assert four - three == gm_layer(config, 10)
    with pytest.raises(ConfigError, match="any size"):
        flops_per_example(config.model, spec)


@pytest.mark.parametrize("algorithm", ["bfs", "paths", "components"])
@pytest.mark.parametrize("name", ["gm", "transformer"])
def test_sizes_are_those_of_the_training_batches(name: str, algorithm: str) -> None:
    """Edge features, node features and every kind of output; the mean over graphs of any size."""
    config = config_for(f"algorithms-{name}", "smoke", settings=[f"task.algorithm={algorithm}"])
    sizes = [batch.num_nodes for batch in flops.some_batches(config, None)]
    assert set(sizes) == {4, 5, 6}
    spec = task_of(config.task).spec
    each = [flops_per_example(config.model, spec, nodes) for nodes in sizes]
    assert flops_per_step(config) == round(16 * sum(each) / len(each))


@pytest.mark.parametrize("name", ["pointers-gine", "algorithms-gps"])
def test_messages_are_counted_along_the_edges_that_are_there(name: str) -> None:
    """Twice as many slots change nothing: the others are empty."""
    pytest.importorskip(
        "torch_geometric", reason="PyG is not installed; with the extra 'pyg', it is tested"
    )
    config = config_for(name, "smoke")
    assert flops_per_step(config)
    assert flops_per_step(config) == flops_per_step(config.with_model(num_edges=16))


def test_a_recurrent_core_on_graphs_of_any_size() -> None:
    config = config_for("pointers-gm-recurrent", "smoke")
    more = config.with_train(rounds_min=config.model.rounds)
    few, many = flops_per_step(config), flops_per_step(more)
    assert few
    assert many
    assert few < many


def test_examples_that_are_not_generated_tell_their_sizes_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = config_for("pointers-gm", "smoke")
    expected, task = flops_per_step(config), make_task(config.task)
    monkeypatch.setattr(flops, "GeneratedTask", int)  # as if this task were none
    assert flops_per_step(config) is None
    assert flops_per_step(config, task) == expected


def test_attention_of_gps_counts() -> None:
    """GPS has as many products as GINE on each node, and full attention besides."""
    gine, gps = (config_for(f"algorithms-{name}", "smoke") for name in ("gine", "gps"))
    spec = task_of(gine.task).spec
    for n in (5, 12):
        attention = 2 * gps.model.num_layers * products(n, n, gps.model.d_node)
        assert (
            flops_per_example(gps.model, spec, n)
            == flops_per_example(gine.model, spec, n) + attention
        )
