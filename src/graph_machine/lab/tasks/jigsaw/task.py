"""What a model is given: a token per cell, and hard edges to the four neighbours.

The category of an edge says in which direction the neighbour lies and whether it is in the same
region. Regions are nowhere else, unless `regions_in_tokens` puts them into the tokens.
"""

import os
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import UInt8, UInt64

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import GRID_CATEGORIES, InputGraph, grid_graph
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import cached_store
from graph_machine.lab.tasks.digits import SYMBOLS, of_digits
from graph_machine.lab.tasks.disguise import Disguise
from graph_machine.lab.tasks.jigsaw.puzzles import (
    COLUMNS,
    HEADER,
    Jigsaws,
    changed_jigsaws,
    connected_parts,
    few_jigsaws,
    format_puzzle,
    generate_jigsaws,
    layout_keys,
    parse_puzzle,
    random_changes,
    read_jigsaws,
    side_of,
    write_jigsaws,
)
from graph_machine.lab.tasks.rows import Splits, split_by_key, stream_key
from graph_machine.lab.tasks.scores import Grouping
from graph_machine.lab.tasks.sudoku.solve import RATING_BANDS
from graph_machine.lab.tasks.sudoku.task import DigitTask

SLOTS = 5
DIRECTIONS = GRID_CATEGORIES[1:5]
# self; up, down, left, right in the same region; the same in another region; empty.
CATEGORIES = ("self", *DIRECTIONS, *(f"{way}, other region" for way in DIRECTIONS), "empty")


def jigsaw_graph(regions: UInt8[np.ndarray, "b n"]) -> InputGraph:
    """The input edges of each board."""
    side = side_of(regions.shape[1])
    grid = grid_graph(side, side, SLOTS)
    labels = torch.from_numpy(regions).long()
    other = labels[:, grid.targets.clamp(min=0)] != labels[:, :, None]  # b n k
    way = (grid.categories > 0) & (grid.targets >= 0)
    empty = grid.targets < 0
    categories = torch.where(way & other, grid.categories + len(DIRECTIONS), grid.categories)
    categories = categories.masked_fill(empty, len(CATEGORIES) - 1)
    targets = grid.targets.expand(len(regions), -1, -1)
    return InputGraph(targets, categories, len(CATEGORIES))


def batch_regions(batch: Batch) -> UInt8[np.ndarray, "b n"]:
    """The regions of a batch in reading order, from its edges."""
    graph = batch.graph
    assert graph is not None
    same = (graph.categories >= 1) & (graph.categories <= len(DIRECTIONS))
    return connected_parts(torch.where(same, graph.targets, -1).cpu().numpy())


class JigsawTask(DigitTask[Jigsaws]):
    """Puzzles from a .csv file, or generated and cached.

    The split (0.9 / 0.05 / 0.05, redrawn for each seed) is by regions: no partition of an eval or
    test board occurs in training, not even rotated or mirrored.
    """

    name = "jigsaw"
    text_hint = "PUZZLE/REGIONS; . or 0 is a blank"
    groupings = (Grouping("rating", "rating", RATING_BANDS), Grouping("clues", "clues"))
    quick_side = 9
    made_words = ("minimal jigsaw puzzles", "0 to")
    augment_words = {  # noqa: RUF012
        "none": "",
        "relabel": ", digits relabelled",
        "all": ", digits relabelled, boards turned",
    }
    seen_part = "regions"
    config: JigsawConfig

    def make_spec(self) -> InputSpec:
        side, regions_in_tokens = self.config.side, self.config.regions_in_tokens
        return InputSpec(
            num_tokens=(side + 1) * (side if regions_in_tokens else 1),
            num_outputs=side,
            num_nodes=side * side,
            grid=(side, side),
            graph="given",
            num_edge_categories=len(CATEGORIES),
            alphabet=None if regions_in_tokens else SYMBOLS[: side + 1],
            answers=SYMBOLS[1 : side + 1],
        )

    def read(self, path: str, limit: int | None = None) -> Jigsaws:
        return read_jigsaws(path).take(slice(limit))

    def write(self, path: str | os.PathLike[str], store: Jigsaws) -> None:
        write_jigsaws(path, store)

    def rows_of(self, text: str, size: str | None = None) -> Jigsaws:
        puzzle, regions = parse_puzzle(text)
        return Jigsaws.unsolved(puzzle[None], regions[None])

    def generate(self) -> Jigsaws:
        c, workers = self.config, os.cpu_count() or 1
        return generate_jigsaws(
            c.side, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers
        )

    def generated(self) -> Jigsaws:
        c = self.config
        name = f"jigsaw-{c.side}-{c.puzzles}-extra{c.clues_extra}-seed{c.data_seed}"
        return cached_store(Jigsaws, name, c.puzzles, c.side, self.generate)

    def keys(self, rows: Jigsaws) -> UInt64[np.ndarray, "b"]:
        """Of regions, however rotated or mirrored."""
        return layout_keys(rows.regions)

    def split(self, store: Jigsaws, seed: int) -> Splits:
        return split_by_key(self.keys(store), seed)

    def augmented(self, rows: Jigsaws, seed: int, step: int, progress: float) -> Jigsaws:
        if self.config.augment == "none":
            return rows
        key, turn = stream_key("augment", seed, step), self.config.augment == "all"
        return changed_jigsaws(rows, *random_changes(len(rows), rows.side, key, turn=turn))

    def batch_of(self, rows: Jigsaws) -> Batch:
        """Puzzles as tensors; ratings and clue counts go along as groups."""
        puzzles = torch.from_numpy(rows.puzzles).long()
        tokens = puzzles
        if self.config.regions_in_tokens:
            tokens = puzzles * rows.side + torch.from_numpy(rows.regions).long()
        return Batch(
            tokens=tokens,
            answers=(torch.from_numpy(rows.solutions).long() - 1).clamp_min(0),
            where=puzzles == 0,
            groups={"rating": rows.ratings, "clues": rows.clues},
            graph=jigsaw_graph(rows.regions),
        )

    def boards(self, batch: Batch) -> tuple[UInt8[np.ndarray, "b n"], UInt8[np.ndarray, "b n"]]:
        assert batch.tokens is not None
        tokens = batch.tokens.cpu().numpy()
        if self.config.regions_in_tokens:
            tokens = tokens // side_of(tokens.shape[1])
        return tokens.astype(np.uint8), batch_regions(batch)

    def few_puzzles(self, count: int, seed: int) -> Batch:
        extra = self.config.clues_extra
        return self.batch_of(few_jigsaws(self.config.side, count, seed, extra=extra))

    def parse(self, text: str) -> Batch:
        """`PUZZLE/REGIONS`, a symbol per cell in both."""
        rows = self.rows_of(text)
        if rows.side != self.config.side:
            cells = self.spec.num_nodes
            raise DataError(f"Expected boards of {cells} cells, got {rows.side**2}.")
        return self.batch_of(rows)

    def text(self, example: Batch) -> str:
        puzzles, regions = self.boards(example)
        return format_puzzle(puzzles[0], regions[0])

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """A row of a puzzle file has puzzle and regions in its second and third column."""
        for number, line in super().examples_in(text):
            if line != HEADER:
                parts = line.split(",")
                yield number, "/".join(parts[1:3]) if len(parts) == len(COLUMNS) else line

    def disguise(self, batch: Batch, number: int) -> Disguise:
        """Digits relabelled, the board turned or mirrored."""
        key = stream_key("tries", number)
        cells, names = random_changes(len(batch), self.config.side, key, turn=True)
        rows = Jigsaws.unsolved(*self.boards(batch))
        return of_digits(self.batch_of(changed_jigsaws(rows, cells, names)), cells, names)

    def example_regions(self, batch: Batch) -> dict[str, np.ndarray]:
        return {"region": batch_regions(batch)}
