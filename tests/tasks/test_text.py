"""Bytes of a text: splits do not overlap, bits per byte, compressors, bad files."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from graph_machine.config import ModelConfig
from graph_machine.errors import DataError
from graph_machine.lab.config import TextConfig
from graph_machine.lab.tasks.base import baseline_scores, make_task
from graph_machine.lab.tasks.text import START, TextTask, compressed_bits
from graph_machine.lab.training.evaluate import evaluate
from graph_machine.models import GraphMachine

SMALL = TextConfig(length=16, most=40_000)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{number} is a number.\n" for number in range(2_000)))
    return path


def open_text(path: Path | None) -> TextTask:
    task = make_task(SMALL, None if path is None else str(path))
    assert isinstance(task, TextTask)
    return task


def test_splits_are_the_text_in_order(text: Path) -> None:
    task = open_text(text)
    joined = b"".join(part.tobytes() for part in task.parts.values())
    assert joined == text.read_bytes()[:40_000]
    assert task.source == str(text)
    batch = next(task.split_batches("test", 4))
    assert batch.known_tokens[:, 0].tolist() == [START] * 4
    assert torch.equal(batch.known_tokens[:, 1:], batch.answers[:, :-1])
    assert bytes(batch.answers.flatten().tolist()) == task.parts["test"][:64].tobytes()
    one, again = task.batch(5, 3, 0), task.batch(5, 3, 0)
    assert torch.equal(one.answers, again.answers)
    assert bytes(one.answers[0].tolist()) in task.parts["train"].tobytes()


def test_without_a_file_it_is_the_standard_library() -> None:
    task = open_text(None)
    assert b"import" in task.parts["train"].tobytes()
    assert task.source == "generated"
    assert task.identity == open_text(None).identity


def test_a_model_that_knows_nothing_needs_eight_bits_a_byte(text: Path) -> None:
    task = open_text(text)
    model = GraphMachine(ModelConfig(num_layers=1, d_node=8, d_edge=4, num_heads=2), task.spec)
    torch.nn.init.zeros_(model.readout.weight)
    found = evaluate(model, task, "test", limit=8).summary()
    assert found["bits_per_byte"] == pytest.approx(8.0)
    assert found["loss"] == pytest.approx(8 * math.log(2))


def test_compressors(text: Path) -> None:
    task = open_text(text)
    bits = compressed_bits(task.parts["test"].tobytes())
    assert list(bits) == ["gzip -9", "bzip2 -9", "xz -9e"]
    assert all(0 < value < 8 for value in bits.values())


def test_references_on_the_same_windows(text: Path) -> None:
    task = open_text(text)
    found = {name: s.summary() for name, s in baseline_scores(task, "test", limit=32).items()}
    bits = {name: summary["bits_per_byte"] for name, summary in found.items()}
    assert bits["gzip -9"] == pytest.approx(
        compressed_bits(task.parts["test"][: 32 * 16].tobytes())["gzip -9"]
    )
    assert 1 < bits["pairs of bytes, counted"] < 4
    assert 0.4 < found["pairs of bytes, counted"]["byte_accuracy"] < 0.9
    assert found["gzip -9"]["byte_accuracy"] is None  # a compressor names no bytes


def test_text_form(text: Path) -> None:
    task = open_text(text)
    example = task.parse("12 is a num")
    assert task.text(example) == "12 is a num"
    assert task.show(example, np.frombuffer(b"numbers", np.uint8), np.ones(7)).text == "numbers"
    assert task.text(task.parse("aé" * 20)) == "aé" * 5  # cut inside a character
    assert bytes(task.parse("a\udce9").answers[0].tolist()) == b"a\xe9"
    with pytest.raises(DataError, match="text"):
        task.parse("")


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="text"):
        open_text(tmp_path / "missing.txt")
    short = tmp_path / "short.txt"
    short.write_text("too short")
    with pytest.raises(DataError, match="60 windows"):
        open_text(short)
