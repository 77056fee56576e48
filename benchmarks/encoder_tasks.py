"""Small learning tasks for a GraphEncoder beside layers of PyG, trained in one loop.

    python benchmarks/encoder_tasks.py --tasks digits diameter --models gm gine --seconds 30
    python benchmarks/encoder_tasks.py --tasks mutag --tu PATH --models gm gps --folds 10

Every model gets the same CPU seconds on one thread, with its data loading, and the same optimiser:
Adam, a short warm-up, then a rate that falls to 0 as the seconds run out. `--rates` are learning
rates to try; `--rates 0` takes, for every task and model, the one that was best on seed 100 among
the runs of the file with the same seconds. (On TU data sets, seed 100 holds out a tenth of the
graphs that fold 0 trains on.) `--parameters` picks the width that comes nearest to a number of
parameters instead of `--width`. `--steps` says how long to
train instead: a busy machine makes fewer steps in a CPU second than a quiet one, so results that
should stand beside older ones take the steps that the seconds were worth then. Each result is one
line of a file (`--out`); what is in the file is not trained again. `encoder_table.py` makes tables
of it.
Needs `pip install 'graph-machine[pyg]'`; `--tu` is a folder with NAME.txt and NAME.folds.json in
the format of muhanzhang/pytorch_DGCNN: every fold is trained on all other graphs, without a choice
of the epoch.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import networkx
import numpy as np
import torch
import torch_geometric.nn as pyg
import tyro
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn
from torch_geometric.data import Data
from torch_geometric.datasets.graph_generator import BAGraph
from torch_geometric.datasets.motif_generator import HouseMotif
from torch_geometric.loader import DataLoader
from torch_geometric.utils import stochastic_blockmodel_graph, to_undirected

from graph_machine import GraphEncoder

DEPTH, HEADS, BATCH = 4, 4, 32
CHOICE = 100  # the seed on which rates and settings are chosen; none of the table's
SEEN = 20  # batches over which statistics are taken before a test


class Task(NamedTuple):
    """Graphs to learn from and to be measured on, and what is asked about them."""

    train: list[Any]
    tests: dict[str, list[Any]]
    num_outputs: int  # 1: a number, measured by R²; else classes, by accuracy
    of_nodes: bool = False


def digit(label: int, font: Path, rng: np.random.Generator) -> Data:
    """A digit in some font, turned and shifted: its dark pixels with their nearest neighbours."""
    picture = Image.new("L", (60, 60))
    middle = (30 + rng.uniform(-4, 4), 30 + rng.uniform(-4, 4))
    size = int(rng.uniform(34, 48))
    pen = ImageFont.truetype(str(font), size)
    ImageDraw.Draw(picture).text(middle, str(label), fill=255, font=pen, anchor="mm")
    turned = picture.rotate(rng.uniform(-20, 20), Image.Resampling.BILINEAR)
    small = np.asarray(turned.resize((12, 12), Image.Resampling.BOX), dtype=np.float32) / 255
    ink = torch.from_numpy(small)
    place = (ink > 0.25).nonzero().float()
    near = torch.cdist(place, place).topk(min(7, len(place)), largest=False).indices[:, 1:]
    start = torch.arange(len(place)).unsqueeze(-1).expand_as(near)
    edge_index = torch.stack([near.flatten(), start.flatten()])
    step = place[edge_index[0]] - place[edge_index[1]]
    x = torch.cat([place / 6 - 1, ink[ink > 0.25].unsqueeze(-1)], dim=-1)
    return Data(x=x, edge_index=edge_index, edge_attr=step / 2, y=torch.tensor([label]))


def digits(seed: int, tu: Path | None) -> Task:
    """Which digit is this? Drawn in fonts that come with matplotlib."""
    rng = np.random.default_rng(seed)
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = sorted([*folder.glob("DejaVu*.ttf"), *folder.glob("STIXGeneral*.ttf")])
    fonts = [font for font in fonts if "Display" not in font.name]
    drawn = [digit(n % 10, fonts[rng.integers(len(fonts))], rng) for n in range(2_000)]
    return Task(drawn[500:], {"": drawn[:500]}, 10)


def tree(nodes: int, rng: np.random.Generator) -> Data:
    """A random tree with weighted edges; the question is the length of its longest path."""
    graph = networkx.random_labeled_tree(nodes, seed=int(rng.integers(2**31)))
    weights = {edge: rng.uniform(0.1, 1.0) for edge in graph.edges}
    networkx.set_edge_attributes(graph, weights, "weight")
    start = next(iter(graph.nodes))
    for _ in range(2):  # the farthest node from anywhere is one end
        far = networkx.single_source_dijkstra_path_length(graph, start)
        start = max(far, key=far.__getitem__)
    edges = torch.tensor(list(graph.edges)).t()
    edge_index = torch.cat([edges, edges.flip(0)], dim=1)
    edge_attr = torch.tensor([*weights.values()] * 2, dtype=torch.float32).unsqueeze(-1)
    y = torch.tensor([far[start] / 5])
    return Data(torch.ones(nodes, 1), edge_index, edge_attr, y)


def diameter(seed: int, tu: Path | None) -> Task:
    """Longest path of a weighted tree; `larger` trees than those of training, too."""
    rng = np.random.default_rng(seed)
    made = [tree(int(rng.integers(8, 25)), rng) for _ in range(1_500)]
    larger = [tree(int(rng.integers(30, 50)), rng) for _ in range(200)]
    return Task(made[300:], {"": made[:300], " larger": larger}, 1)


def tu_set(name: str, seed: int, folder: Path | None) -> Task:
    """Fold `seed` of a TU data set; seed 100 is a part of what fold 0 trains on."""
    if folder is None:
        raise SystemExit(f"{name} needs --tu FOLDER.")
    lines = iter((folder / f"{name}.txt").read_text().splitlines())
    graphs, tags, labels = [], {}, {}
    for _ in range(int(next(lines))):
        size, label = map(int, next(lines).split())
        rows = [list(map(int, next(lines).split())) for _ in range(size)]
        tag = [tags.setdefault(row[0], len(tags)) for row in rows]
        ends = [(other, node) for node, row in enumerate(rows) for other in row[2:]]
        edge_index = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).t()
        y = torch.tensor([labels.setdefault(label, len(labels))])
        graphs.append(Data(torch.tensor(tag), edge_index, y=y))
    for graph in graphs:
        graph.x = nn.functional.one_hot(graph.x, len(tags)).float()
    fold = 0 if seed == CHOICE else seed
    held = set(json.loads((folder / f"{name}.folds.json").read_text())[fold])
    train = [graph for number, graph in enumerate(graphs) if number not in held]
    if seed == CHOICE:
        order = np.random.default_rng(seed).permutation(len(train))
        apart = [train[number] for number in order]
        cut = len(train) // 10
        return Task(apart[cut:], {"": apart[:cut]}, len(labels))
    return Task(train, {"": [graphs[number] for number in sorted(held)]}, len(labels))


def house_graph(seed: int) -> Data:
    """PyG's BAShapes in small: houses on a Barabasi-Albert graph; which corner is a node?"""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - PyG draws from it
    base: Any = BAGraph(num_nodes=40, num_edges=3)()
    house: Any = HouseMotif()()
    parts, y, size = [base.edge_index], [torch.zeros(40, dtype=torch.long)], 40
    for _ in range(6):
        door = torch.tensor([[int(torch.randint(40, ()))], [size]])
        parts += [house.edge_index + size, door, door.flip(0)]
        y.append(house.y + 1)
        size += house.num_nodes
    return Data(torch.ones(size, 1), torch.cat(parts, dim=1), y=torch.cat(y))


def bashapes(seed: int, tu: Path | None) -> Task:
    """Corners of houses on a random graph."""
    made = [house_graph(1_000 * seed + number) for number in range(150)]
    return Task(made[50:], {"": made[:50]}, 4, of_nodes=True)


def block_graph(seed: int) -> Data:
    """A stochastic block model; one node of each block is marked. Which block is a node in?"""
    torch.manual_seed(seed)
    sizes = torch.randint(8, 20, (5,))
    chances = torch.full((5, 5), 0.1) + 0.4 * torch.eye(5)
    edge_index = stochastic_blockmodel_graph(sizes, chances)
    y = torch.arange(5).repeat_interleave(sizes)
    x = torch.zeros(len(y), 5)
    first = sizes.cumsum(0) - sizes
    x[first, torch.arange(5)] = 1.0
    return Data(x, edge_index, y=y)


def sbm(seed: int, tu: Path | None) -> Task:
    """Blocks of random graphs."""
    made = [block_graph(1_000 * seed + number) for number in range(400)]
    return Task(made[100:], {"": made[:100]}, 5, of_nodes=True)


def marked(nodes: int, edges: Tensor, seed: int) -> Any:
    """An undirected graph whose nodes are in random order; one of them is marked."""
    torch.manual_seed(seed)
    x = torch.zeros(nodes, 1)
    x[torch.randint(nodes, ())] = 1.0
    return Data(x, to_undirected(torch.randperm(nodes)[edges]))


def lengths(data: Any, weights: Tensor | None = None) -> Tensor:
    """From the marked node to every other one; infinite where there is no path."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(data.x)))
    given = [1.0] * data.num_edges if weights is None else weights.tolist()
    graph.add_weighted_edges_from(zip(*data.edge_index.tolist(), given, strict=True))
    found = networkx.single_source_dijkstra_path_length(graph, int(data.x.argmax()))
    return torch.tensor([found.get(node, math.inf) for node in range(len(data.x))])


def bfs_graph(seed: int) -> Data:
    """How many steps is every node of a tree away from the marked one? At most 11 are counted."""
    rng = np.random.default_rng(seed)
    parents = [(node, node - 1 - int(rng.integers(min(node, 4)))) for node in range(1, 24)]
    data = marked(24, torch.tensor(parents).t(), seed)
    data.y = lengths(data).clamp_max(11).long()
    return data


def paths_graph(seed: int) -> Data:
    """How long is the shortest path to every node of a grid with weighted edges?"""
    cell = torch.arange(25).reshape(5, 5)
    across = torch.stack([cell[:, :-1].flatten(), cell[:, 1:].flatten()])
    down = torch.stack([cell[:-1].flatten(), cell[1:].flatten()])
    data = marked(25, torch.cat([across, down], dim=1), seed)
    weights = torch.rand(25, 25)
    weights = (weights + weights.t())[tuple(data.edge_index)] / 2
    data.edge_attr, data.y = weights.unsqueeze(-1), lengths(data, weights)
    return data


def components_graph(seed: int) -> Data:
    """Two paths of 12 nodes: who is on the same one as the marked node, up to 11 steps away?"""
    steps = torch.tensor([step for step in range(23) if step != 11])
    data = marked(24, torch.stack([steps, steps + 1]), seed)
    data.y = lengths(data).isfinite().long()
    return data


def about_nodes(make: Callable[[int], Data], num_outputs: int) -> Callable[..., Task]:
    """A task with 1,000 such graphs to learn from."""

    def task(seed: int, tu: Path | None) -> Task:
        made = [make(10_000 * seed + number) for number in range(1_200)]
        return Task(made[200:], {"": made[:200]}, num_outputs, of_nodes=True)

    return task


TASKS: dict[str, Callable[[int, Path | None], Task]] = {
    "digits": digits,
    "diameter": diameter,
    "mutag": lambda seed, tu: tu_set("MUTAG", seed, tu),
    "proteins": lambda seed, tu: tu_set("PROTEINS", seed, tu),
    "nci1": lambda seed, tu: tu_set("NCI1", seed, tu),
    "bashapes": bashapes,
    "sbm": sbm,
    "bfs": about_nodes(bfs_graph, 12),
    "paths": about_nodes(paths_graph, 1),
    "components": about_nodes(components_graph, 2),
}
FOLDED = ("mutag", "proteins", "nci1")


class PygLayers(nn.Module):
    """GINE, GPS, GAT or a Transformer over the edges, as their users stack them."""

    def __init__(self, kind: str, width: int, d_in: int, d_edge: int | None) -> None:
        super().__init__()
        self.kind, self.first = kind, nn.Linear(d_in, width)
        self.edge = nn.Linear(d_edge or 1, width)
        self.layers = nn.ModuleList(self.layer(kind, width) for _ in range(DEPTH))
        self.norms = nn.ModuleList(pyg.BatchNorm(width) for _ in range(DEPTH))

    def layer(self, kind: str, width: int) -> nn.Module:
        """One layer."""
        if kind == "gat":
            return pyg.GATv2Conv(width, width // HEADS, heads=HEADS, edge_dim=width)
        if kind == "transformer":
            return pyg.TransformerConv(width, width // HEADS, heads=HEADS, edge_dim=width)
        wide = nn.Linear(width, 2 * width)
        gine = pyg.GINEConv(nn.Sequential(wide, nn.ReLU(), nn.Linear(2 * width, width)))
        return gine if kind == "gine" else pyg.GPSConv(width, gine, heads=HEADS)

    def forward(self, data: Any) -> Tensor:
        x, edge_index = self.first(data.x), data.edge_index
        edges = data.edge_attr
        edges = self.edge(x.new_ones(edge_index.shape[1], 1) if edges is None else edges)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            if self.kind == "gps":
                x = layer(x, edge_index, data.batch, edge_attr=edges)
            else:
                x = x + norm(layer(x, edge_index, edge_attr=edges)).relu()
        return x


class GmLayers(nn.Module):
    """A GraphEncoder in the same place."""

    def __init__(self, settings: dict[str, Any], width: int, d_in: int, d_edge: int | None) -> None:
        super().__init__()
        sizes = {"d_node": width, "d_in": d_in, "d_edge_in": d_edge, "num_layers": DEPTH}
        settings = {"direction": "in", **sizes, **settings}
        self.encoder = GraphEncoder(**settings)

    def forward(self, data: Any) -> Tensor:
        return self.encoder(data.x, data.edge_index, data.edge_attr, data.batch)


PAPER = {"given_edges": "first", "empty_edge": False, "edge_values": False}
GM: dict[str, dict[str, Any]] = {
    "gm": {},
    "gm-paper": {
        **PAPER,
        "referral": "joint",
        "init": "matrices",
        "expansion": 4,
        "num_edges": 24,
        "project_input_edges": False,
    },
}


class Model(nn.Module):
    """Layers and a head, the same for all kinds."""

    def __init__(self, kind: str, width: int, task: Task, settings: dict[str, Any]) -> None:
        super().__init__()
        one = task.train[0]
        d_edge = None if one.edge_attr is None else one.edge_attr.shape[1]
        if kind in GM:
            self.layers: nn.Module = GmLayers(GM[kind] | settings, width, one.x.shape[1], d_edge)
        else:
            self.layers = PygLayers(kind, width, one.x.shape[1], d_edge)
        self.of_nodes = task.of_nodes
        wide = width if task.of_nodes else 3 * width
        self.head = nn.Sequential(
            nn.Linear(wide, width), nn.ReLU(), nn.Linear(width, task.num_outputs)
        )

    def forward(self, data: Any) -> Tensor:
        nodes = self.layers(data)
        if self.of_nodes:
            return self.head(nodes)
        pools = (pyg.global_mean_pool, pyg.global_max_pool, pyg.global_add_pool)
        parts = [pool(nodes, data.batch) for pool in pools]
        return self.head(torch.cat([parts[0], parts[1], parts[2] / 10], dim=-1))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(each.numel() for each in self.parameters())


def loss_of(found: Tensor, data: Any) -> Tensor:
    """Squared error of numbers, cross-entropy of classes."""
    if found.shape[1] == 1:
        return nn.functional.mse_loss(found.squeeze(-1), data.y)
    return nn.functional.cross_entropy(found, data.y)


@torch.no_grad()
def score(model: Model, graphs: list[Any]) -> float:
    """Accuracy, or R² of numbers."""
    model.eval()
    found, wanted = [], []
    for data in DataLoader(graphs, batch_size=BATCH):
        found.append(model(data))
        wanted.append(data.y)
    outs, y = torch.cat(found), torch.cat(wanted)
    if outs.shape[1] == 1:
        return 1 - float((outs.squeeze(-1) - y).square().mean() / y.var(unbiased=False))
    return float((outs.argmax(dim=-1) == y).float().mean())


def train(model: Model, task: Task, seconds: float, rate: float, wanted: int | None = None) -> int:
    """Train for some CPU seconds, or for a number of steps; returns the number of steps."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    spent, steps = 0.0, 0
    while True:
        begin = time.process_time()
        for data in DataLoader(task.train, batch_size=BATCH, shuffle=True):
            model.train()
            done = spent / seconds if wanted is None else steps / wanted
            for group in optimiser.param_groups:
                group["lr"] = rate * min(1.0, (steps + 1) / 10, 2 * math.cos(done * math.pi / 2))
            loss = loss_of(model(data), data)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            steps += 1
            spent += time.process_time() - begin
            begin = time.process_time()
            if (spent >= seconds) if wanted is None else (steps >= wanted):
                return steps


def settle(model: Model, task: Task) -> None:
    """Take the statistics of batch norm anew, with the final weights.

    Running means lag behind, and a column that hardly varies, as attention over nodes without
    features has it, is multiplied by 300 in eval mode: without this, GPS had learned the diameter
    of trees (R² 0.94 with the statistics of the batch) and was measured at -5.
    """
    update_bn(islice(DataLoader(task.train, batch_size=BATCH, shuffle=True), SEEN), model)


def nearest_width(kind: str, task: Task, parameters: int, settings: dict[str, Any]) -> int:
    """The width whose model has about that many parameters."""
    widths = range(8, 136, 8)
    return min(widths, key=lambda w: abs(Model(kind, w, task, settings).size - parameters))


@dataclass(frozen=True)
class Settings:
    """What is trained, and for how long."""

    tasks: tuple[str, ...] = ("digits", "diameter")
    models: tuple[str, ...] = ("gm", "gine", "gps", "gat", "transformer")
    seconds: float = 30.0
    seeds: tuple[int, ...] = (0, 1, 2)
    folds: int = 10  # instead of seeds, of the TU data sets
    rates: tuple[float, ...] = (3e-3,)  # learning rates; 0: the best on seed 100
    width: int = 32
    parameters: int | None = None
    steps: int | None = None  # instead of the seconds, which are only noted
    tu: Path | None = None
    out: Path = Path("benchmarks/results/encoder_tasks.jsonl")
    change: dict[str, str] = field(default_factory=dict)  # settings of the encoder, as JSON


def best_rate(runs: list[dict[str, Any]], task: str, kind: str, seconds: float) -> float:
    """The learning rate that was best on seed 100, for encoders with their defaults."""
    own = [each for each in runs if each["run"]["seed"] == CHOICE and not each["run"]["change"]]
    wanted = {"task": task, "model": kind, "seconds": seconds}
    own = [each for each in own if wanted.items() <= each["run"].items()]
    if not own:
        raise SystemExit(f"--rates 0: no run of {kind} on {task} with seed {CHOICE} in the file.")
    return max(own, key=lambda each: each["scores"][""])["run"]["rate"]


def main(settings: Settings) -> None:
    """Train everything that was asked for and is not in the file, one after the other."""
    torch.set_num_threads(1)
    change = {name: json.loads(value) for name, value in settings.change.items()}
    lines = settings.out.read_text().splitlines() if settings.out.exists() else []
    runs = [json.loads(line) for line in lines]
    done = [each["run"] for each in runs]
    asked: dict[str, Any] = {"seconds": settings.seconds, "change": change}
    asked |= {"width": settings.width, "parameters": settings.parameters}
    asked |= {} if settings.steps is None else {"steps": settings.steps}
    for name in settings.tasks:
        folded = name in FOLDED and settings.seeds != (CHOICE,)
        for seed in range(settings.folds) if folded else settings.seeds:
            task = None
            for kind, rate in product(settings.models, settings.rates):
                rate = rate or best_rate(runs, name, kind, settings.seconds)
                run = {"task": name, "model": kind, "seed": seed, "rate": rate, **asked}
                if run in done:
                    continue
                task = TASKS[name](seed, settings.tu) if task is None else task
                torch.manual_seed(seed)
                width = settings.width
                if settings.parameters is not None:
                    width = nearest_width(kind, task, settings.parameters, change)
                model = Model(kind, width, task, change)
                steps = train(model, task, settings.seconds, rate, settings.steps)
                settle(model, task)
                scores = {test: score(model, graphs) for test, graphs in task.tests.items()}
                found = {
                    "width": width,
                    "parameters": model.size,
                    "steps": steps,
                    "scores": scores,
                    "settled": SEEN,
                }
                line = json.dumps({"run": run, **found, "number": task.num_outputs == 1})
                with settings.out.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main(tyro.cli(Settings))
