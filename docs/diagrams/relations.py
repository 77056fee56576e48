"""Which edges a model with referral has made after every round, and the relation that each holds.

python docs/diagrams/relations.py RUN "0-1:father 1-2:sister 0?2" docs/images/relations.png
"""

import argparse

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from graph_machine.lab.opening import open_model
from graph_machine.lab.tasks.relations import RelationsTask
from graph_machine.nn import listen

CLEAR = 0.5  # mass of a slot on a node from which on its relation is written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("question")
    parser.add_argument("picture")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    opened = open_model(args.run)
    task, model = opened.task, opened.model.eval()
    assert isinstance(task, RelationsTask)
    example = task.parse(args.question)
    n, words = example.num_nodes, task.algebra.words
    every = [[node, other] for node in range(n) for other in range(n)]
    inputs = example.inputs | {"pairs": torch.tensor([every])}
    masses: list[Tensor] = []  # by round: that of the slot that points most at a node

    def listener(name: str, tensor: Tensor) -> None:
        if name.endswith("edge.0.address_outs"):
            masses.append(tensor[0].amax(dim=1))

    with torch.no_grad(), listen(model, listener):
        rounds = model.iterate(**inputs)
        read = [next(rounds)[0].argmax(dim=-1).view(n, n) for _ in range(args.rounds)]
    figure, panels = plt.subplots(1, args.rounds, figsize=(0.5 * n * args.rounds, 0.5 * n + 0.8))
    for number, (panel, mass, found) in enumerate(zip(panels, masses, read), start=1):
        panel.imshow(mass, cmap="Greens", vmin=0, vmax=1.4)
        for node, other in every:
            if mass[node, other] > CLEAR and node != other:
                word = words[int(found[node, other])]
                word = word.replace("grand", "grand\n").replace("-in", "-\nin")
                panel.text(other, node, word, ha="center", va="center", fontsize=5)
        panel.set_xticks(range(n))
        panel.set_yticks(range(n))
        panel.set_xlabel("to node")
        panel.set_title(f"round {number}", fontsize=9)
    panels[0].set_ylabel("edges of node")
    figure.suptitle(args.question, fontsize=8)
    figure.tight_layout()
    figure.savefig(args.picture, dpi=110)


if __name__ == "__main__":
    main()
