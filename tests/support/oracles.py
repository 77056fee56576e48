"""The paper's listings once more, from its equations: numpy, one graph, head and node at a time.

Nothing here shares code or structure with `graph_machine.ops`.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

EPS = 1e-8


def softmax(x: np.ndarray) -> np.ndarray:
    """Over all axes of `x` together."""
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def _arrays(case: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().numpy() for name, tensor in case.items()}


def attention(case: Mapping[str, Tensor], mask: Tensor | None = None) -> Tensor:
    """Section 2.2: Z(n1) for every head."""
    x = _arrays(case)
    b, h, n, d = x["n1_queries"].shape
    outs = np.zeros((b, h, n, x["n2_values"].shape[-1]))
    for i, j, n1 in np.ndindex(b, h, n):
        query = x["n1_queries"][i, j, n1]
        a_e1 = softmax(np.array([query @ key for key in x["e1_keys"][i, j, n1]]) / d**0.5)
        m_edge = sum((a * p for a, p in zip(a_e1, x["e1_addresses"][i, n1])), np.zeros(n))
        logits = np.zeros(n)
        for n2 in range(n):
            f_edge = np.log(max(m_edge[n2], EPS))
            f_node = query @ x["n2_keys"][i, j, n2] / d**0.5
            t_edge, t_node = x["edge_factor_temps"][i, j, n1], x["node_factor_temps"][i, j, n1]
            logits[n2] = t_node * f_node + t_edge * f_edge
            if mask is not None and not mask[i, n1, n2]:
                logits[n2] = -np.inf
        outs[i, j, n1] = sum(a * v for a, v in zip(softmax(logits), x["n2_values"][i, j]))
    return torch.from_numpy(outs)


def referral(
    case: Mapping[str, Tensor], kind: str = "joint", mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Section 2.3 and its two variants: Z_x(n1) and Z_p(n1, n3) for every new slot."""
    x = _arrays(case)
    b, h, n, d = x["n1_queries"].shape
    slots, targets = x["e2_addresses"].shape[-2:]
    features = np.zeros((b, h, n, x["n2_values"].shape[-1]))
    addresses = np.zeros((b, h, n, targets))
    for i, j, n1 in np.ndindex(b, h, n):
        query = x["n1_queries"][i, j, n1]
        a_e1 = softmax(np.array([query @ key for key in x["e1_keys"][i, j, n1]]) / d**0.5)
        m_edge = sum((a * p for a, p in zip(a_e1, x["e1_addresses"][i, n1])), np.zeros(n))
        n2_logits = np.zeros(n)
        for n2 in range(n):
            f_edge = np.log(max(m_edge[n2], EPS))
            f_node = query @ x["n2_keys"][i, j, n2] / d**0.5
            n2_logits[n2] = x["n2_node_factor_temps"][i, j, n1] * f_node
            n2_logits[n2] += x["n2_edge_factor_temps"][i, j, n1] * f_edge
            if mask is not None and not mask[i, n1, n2]:
                n2_logits[n2] = -np.inf
        t_e2 = x["e2_factor_temps"][i, j, n1]
        e2_weights = _e2_weights(x, kind, i, j, query, n2_logits, t_e2)
        features[i, j, n1] = sum(a * v for a, v in zip(a_e1, x["e1_values"][i, j, n1]))
        for n2 in range(n):
            features[i, j, n1] += e2_weights[n2].sum() * x["n2_values"][i, j, n2]
            for e2 in range(slots):
                features[i, j, n1] += e2_weights[n2, e2] * x["e2_values"][i, j, n2, e2]
                addresses[i, j, n1] += e2_weights[n2, e2] * x["e2_addresses"][i, n2, e2]
    return torch.from_numpy(features), torch.from_numpy(addresses)


def _e2_weights(
    x: dict[str, np.ndarray],
    kind: str,
    i: int,
    j: int,
    query: np.ndarray,
    n2_logits: np.ndarray,
    t_e2: float,
) -> np.ndarray:
    """A_e2 of one source node: (n2, e2)."""
    d, keys = len(query), x["e2_keys"][i, j]
    if kind == "preaggregated":
        # Every n2 chooses among its own edges; all that n1 sees of them is the mixture.
        own = np.stack(
            [softmax(keys[n2] @ x["n1_queries"][i, j, n2] / d**0.5) for n2 in range(len(keys))]
        )
        mixed = np.stack([own[n2] @ keys[n2] for n2 in range(len(keys))])
        return softmax(n2_logits + t_e2 * (mixed @ query) / d**0.5)[:, None] * own
    f_e2 = t_e2 * (keys @ query) / d**0.5
    if kind == "conditional":
        return softmax(n2_logits)[:, None] * np.stack([softmax(row) for row in f_e2])
    return softmax(n2_logits[:, None] + f_e2)
