"""What every node holds after every round of a model trained on `relations` with view=arriving.

python docs/diagrams/relations.py RUN "0-1:father 1-2:sister 0?2" docs/images/relations.png
"""

import argparse

import matplotlib.pyplot as plt
import torch

from graph_machine.lab.opening import open_model
from graph_machine.lab.tasks.relations import RelationsTask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("question")
    parser.add_argument("picture")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    opened = open_model(args.run)
    task, model = opened.task, opened.model.eval()
    assert isinstance(task, RelationsTask)
    example = task.parse(args.question)
    assert example.pairs is not None
    source = int(example.pairs[0, 0, 1])
    others = [node for node in range(example.num_nodes) if node != source]
    inputs = example.inputs | {"pairs": torch.tensor([[[node, source] for node in others]])}
    with torch.no_grad():
        rounds = model.iterate(**inputs)
        shares = torch.stack([next(rounds)[0].softmax(dim=-1) for _ in range(args.rounds)], dim=1)
    best, words = shares.max(dim=-1), task.algebra.words
    figure, axes = plt.subplots(figsize=(1.1 * args.rounds + 1, 0.5 * len(others) + 1.2))
    axes.imshow(best.values, cmap="Greens", vmin=0, vmax=1.4, aspect="auto")
    for row in range(len(others)):
        for column in range(args.rounds):
            word = words[int(best.indices[row, column])]
            axes.text(column, row, word, ha="center", va="center", fontsize=7)
    axes.set_yticks(range(len(others)), [f"node {node}" for node in others])
    axes.set_xticks(range(args.rounds), [str(number + 1) for number in range(args.rounds)])
    axes.set_xlabel("round")
    axes.set_title(args.question, fontsize=8)
    figure.tight_layout()
    figure.savefig(args.picture, dpi=120)


if __name__ == "__main__":
    main()
