"""What a model is given: a token per cell, and hard edges to the four neighbours.

The category of an edge says in which direction the neighbour lies and whether it is in the same
region. Regions are nowhere else, unless `regions_in_tokens` puts them into the tokens.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Integer, UInt8
from rich.text import Text

from graph_machine.config import InputSpec
from graph_machine.errors import DataError
from graph_machine.graphs import GRID_CATEGORIES, InputGraph, grid_graph
from graph_machine.lab.config import JigsawConfig
from graph_machine.lab.tasks.base import Task
from graph_machine.lab.tasks.batch import Batch
from graph_machine.lab.tasks.boards import BoardTask, DigitTask
from graph_machine.lab.tasks.digits import SYMBOLS, Solved, format_board, of_digits
from graph_machine.lab.tasks.disguise import Disguise
from graph_machine.lab.tasks.jigsaw.board import (
    JigsawAnswer,
    connected_parts,
    draw_jigsaw,
    format_puzzle,
    layout_keys,
    parse_puzzle,
    side_of,
)
from graph_machine.lab.tasks.jigsaw.puzzles import (
    COLUMNS,
    HEADER,
    Jigsaws,
    augment_jigsaws,
    changed_jigsaws,
    few_jigsaws,
    generate_jigsaws,
    jigsaw_singles,
    random_changes,
    rate_jigsaws,
    read_jigsaws,
    solve_jigsaws,
    write_jigsaws,
)
from graph_machine.lab.tasks.rows import Splits, split_by_key, stream, stream_key
from graph_machine.lab.tasks.scores import Grouping
from graph_machine.lab.tasks.sudoku.solve import RATING_BANDS

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


def graph_regions(graph: InputGraph) -> UInt8[np.ndarray, "b n"]:
    """The regions that follow from the edges of a batch, in reading order."""
    same = (graph.categories >= 1) & (graph.categories <= len(DIRECTIONS))
    targets = torch.where(same, graph.targets, -1)
    return connected_parts(targets.cpu().numpy())


def jigsaw_batch(rows: Jigsaws, *, regions_in_tokens: bool) -> Batch:
    """Puzzles as tensors; ratings and clue counts go along as groups."""
    puzzles = torch.from_numpy(rows.puzzles).long()
    tokens = puzzles
    if regions_in_tokens:
        tokens = puzzles * rows.side + torch.from_numpy(rows.regions).long()
    return Batch(
        tokens=tokens,
        answers=torch.from_numpy(rows.solutions).long() - 1,
        where=puzzles == 0,
        groups={"rating": rows.ratings, "clues": rows.clues},
        graph=jigsaw_graph(rows.regions),
    )


def batch_puzzles(batch: Batch, *, regions_in_tokens: bool) -> UInt8[np.ndarray, "b n"]:
    """The cells of a batch, 0 at blanks."""
    assert batch.tokens is not None
    tokens = batch.tokens.cpu().numpy()
    return (tokens // side_of(tokens.shape[1]) if regions_in_tokens else tokens).astype(np.uint8)


def batch_regions(batch: Batch) -> UInt8[np.ndarray, "b n"]:
    """The regions of a batch, from its edges."""
    assert batch.graph is not None
    return graph_regions(batch.graph)


class JigsawTask(DigitTask, BoardTask):
    """Puzzles from a .csv file, or generated and cached.

    The split (0.9 / 0.05 / 0.05, redrawn for each seed) is by regions: no partition of an eval or
    test board occurs in training, not even rotated or mirrored.
    """

    name = "jigsaw"
    text_hint = "PUZZLE/REGIONS; . or 0 is a blank"
    groupings = (Grouping("rating", "rating", RATING_BANDS), Grouping("clues", "clues"))
    store_class = Jigsaws
    count_field = "puzzles"
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

    def read(self, path: str) -> Jigsaws:
        return read_jigsaws(path)

    def write(self, path: str | os.PathLike[str], store: Jigsaws) -> None:
        write_jigsaws(path, store)

    @classmethod
    def picture(cls, text: str, *, solve: bool = False) -> tuple[Text, str | None, str]:
        puzzle, regions = parse_puzzle(text)
        if not solve:
            return draw_jigsaw(puzzle, regions), None, ""
        found = solve_jigsaws(puzzle[None], regions[None])
        if not found.counts[0]:
            raise DataError("The puzzle has no solution.")
        filled = found.solutions[0]
        several = "The puzzle has more than one solution; this is one of them."
        note = several if found.counts[0] > 1 else ""
        return draw_jigsaw(puzzle, regions, filled=filled), format_board(filled), note

    def rate(self, store: Jigsaws, *, attempts: int, seed: int) -> np.ndarray:
        seeds = stream(stream_key("rate", seed), len(store))
        return rate_jigsaws(store.puzzles, store.regions, store.solutions, seeds, attempts)

    def store_of(self, text: str) -> Jigsaws:
        puzzle, regions = parse_puzzle(text)
        found = solve_jigsaws(puzzle[None], regions[None])
        if found.counts[0] != 1:
            how_many = "more than one" if found.counts[0] else "no"
            raise DataError(f"Cannot rate this puzzle: it has {how_many} solution.")
        return replace(_unsolved(puzzle[None], regions[None]), solutions=found.solutions)

    @property
    def cache_name(self) -> str:
        c = self.config
        return f"jigsaw-{c.side}-{c.puzzles}-extra{c.clues_extra}-seed{c.data_seed}"

    def generate(self) -> Jigsaws:
        c, workers = self.config, os.cpu_count() or 1
        return generate_jigsaws(
            c.side, c.puzzles, c.data_seed, extra=c.clues_extra, workers=workers
        )

    def split(self, store: Jigsaws, seed: int) -> Splits:
        return split_by_key(layout_keys(store.regions), seed)

    def augmented(self, rows: Jigsaws, seed: int, step: int) -> Jigsaws:
        if self.config.augment == "none":
            return rows
        key = stream_key("augment", seed, step)
        return augment_jigsaws(rows, key, turn=self.config.augment == "all")

    def batch_of(self, rows: Jigsaws) -> Batch:
        return jigsaw_batch(rows, regions_in_tokens=self.config.regions_in_tokens)

    def seen_in_training(self, other: Task, limit: int | None) -> int | None:
        """Test puzzles whose regions, however rotated or mirrored, occur in training."""
        if not isinstance(other, JigsawTask):
            return None
        mine = layout_keys(self.store.regions[self.splits.test[:limit]])
        return int(np.isin(mine, layout_keys(other.store.regions[other.splits.train])).sum())

    def puzzles(self, batch: Batch) -> np.ndarray:
        return batch_puzzles(batch, regions_in_tokens=self.config.regions_in_tokens)

    def solved(self, batch: Batch, limit: int = 2) -> Solved:
        return solve_jigsaws(self.puzzles(batch), batch_regions(batch), limit)

    def singles(self, batch: Batch) -> np.ndarray:
        return jigsaw_singles(self.puzzles(batch), batch_regions(batch))

    def board(
        self,
        example: Batch,
        digits: Integer[np.ndarray, "n"],
        confidences: Float[np.ndarray, "n"],
        found: Solved | None = None,
    ) -> JigsawAnswer:
        puzzle, regions = self.puzzles(example)[0], batch_regions(example)[0]
        return JigsawAnswer.of(puzzle, digits, confidences, found, regions=regions)

    def few_puzzles(self, count: int, seed: int) -> Batch:
        extra = self.config.clues_extra
        return self.batch_of(few_jigsaws(self.config.side, count, seed, extra=extra))

    def parse(self, text: str) -> Batch:
        """`PUZZLE/REGIONS`, a symbol per cell in both."""
        puzzle, regions = parse_puzzle(text)
        if len(puzzle) != self.spec.num_nodes:
            raise DataError(f"Expected boards of {self.spec.num_nodes} cells, got {len(puzzle)}.")
        return self.batch_of(_unsolved(puzzle[None], regions[None]))

    def token_words(self, example: Batch) -> list[str]:
        return [SYMBOLS[digit] for digit in self.puzzles(example)[0]]

    def text(self, example: Batch) -> str:
        return format_puzzle(self.puzzles(example)[0], batch_regions(example)[0])

    def examples_in(self, text: str) -> Iterator[tuple[int, str]]:
        """A row of a puzzle file has puzzle and regions in its second and third column."""
        for number, line in super().examples_in(text):
            if line != HEADER:
                parts = line.split(",")
                yield number, "/".join(parts[1:3]) if len(parts) == len(COLUMNS) else line

    def disguise(self, batch: Batch, number: int) -> Disguise:
        """Digits relabelled, the board turned or mirrored."""
        cells, names = random_changes(
            len(batch), self.config.side, stream_key("tries", number), turn=True
        )
        rows = _unsolved(self.puzzles(batch), batch_regions(batch))
        return of_digits(self.batch_of(changed_jigsaws(rows, cells, names)), cells, names)

    def example_regions(self, batch: Batch) -> dict[str, np.ndarray]:
        return {"region": batch_regions(batch)}


def _unsolved(puzzles: np.ndarray, regions: np.ndarray) -> Jigsaws:
    """Boards with a placeholder for the solution, and no rating."""
    return Jigsaws(
        puzzles, regions, np.ones_like(puzzles), np.full(len(puzzles), np.nan, dtype=np.float32)
    )
