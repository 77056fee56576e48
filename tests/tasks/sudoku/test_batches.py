"""Batches: a function of seed and step alone, every row once per epoch, made ahead in a thread."""

import gc
import itertools
import threading
import time
from dataclasses import fields

import numpy as np
import pytest

from graph_machine.errors import DataError
from graph_machine.lab.tasks.sudoku.augment import Augment
from graph_machine.lab.tasks.sudoku.batches import BatchStream


def same(first, second):
    names = [item.name for item in fields(first)]
    return all((getattr(first, name) == getattr(second, name)).all() for name in names)


@pytest.fixture
def rows():
    return np.arange(100, 130)


@pytest.mark.parametrize("batch_size", [1, 7, 30, 64])
def test_every_row_once_per_epoch(sample, rows, batch_size):
    stream = BatchStream(sample, rows, batch_size, seed=0)
    places = np.concatenate([stream.batch_rows(step) for step in range(-(-90 // batch_size))])
    epochs = places[:90].reshape(3, 30)
    assert (np.sort(epochs, axis=1) == rows).all()
    assert (epochs[0] != epochs[1]).any()


@pytest.mark.parametrize("augmented", [False, True])
def test_resume_at_any_step(sample, rows, augmented):
    augment = Augment(sample.box) if augmented else None
    whole = BatchStream(sample, rows, 8, seed=5, augment=augment)
    batches = [whole.batch(step) for step in range(12)]
    for start in (0, 3, 11):
        with BatchStream(sample, rows, 8, 5, start_step=start, augment=augment) as stream:
            for step, batch in zip(range(start, 12), stream):
                assert same(batch, batches[step])
    other = BatchStream(sample, rows, 8, seed=6, augment=augment)
    assert not same(other.batch(0), batches[0])


def test_values_are_copies_of_the_rows(sample, rows):
    stream = BatchStream(sample, rows, 8, seed=0)
    batch = stream.batch(2)
    assert same(batch, sample.take(stream.batch_rows(2)))
    assert batch.puzzles.dtype == batch.solutions.dtype == np.uint8
    assert batch.puzzles.flags.writeable
    assert not np.shares_memory(batch.puzzles, sample.puzzles)


def test_fetch_in_and_out_of_order(sample, rows):
    with BatchStream(sample, rows, 8, seed=0) as stream:
        for step in (0, 1, 2, 9, 10, 3, 3):
            assert same(stream.fetch(step), stream.batch(step))


def test_the_thread_ends(sample, rows):
    def running():
        return [t for t in threading.enumerate() if t.name.startswith("batches")]

    assert not running()
    stream = BatchStream(sample, rows, 8, seed=0, prefetch=2)
    stream.fetch(0)
    assert running()
    stream.close()
    assert not running()
    stream.fetch(1)
    del stream
    gc.collect()
    for _ in range(50):
        if not running():
            break
        time.sleep(0.05)
    assert not running()


def test_errors_of_the_thread_arrive(sample, rows):
    def fail(puzzles, solutions, key):
        raise ArithmeticError("in the thread")

    with (
        BatchStream(sample, rows, 8, seed=0, augment=fail) as stream,
        pytest.raises(ArithmeticError, match="in the thread"),
    ):
        stream.fetch(0)


@pytest.mark.parametrize(("count", "size"), [(0, 8), (5, 0)])
def test_bad_stream(sample, count, size):
    with pytest.raises(DataError, match=f"got {count} rows and batch size {size}"):
        BatchStream(sample, np.arange(count), size, seed=0)


def test_prefetch_hides_the_work(sample, rows):
    """While the reader works, the next batches are made: it waits for the first one only."""

    def slow(puzzles, solutions, key):
        time.sleep(0.02)
        return puzzles, solutions

    waited = []
    with BatchStream(sample, rows, 8, seed=0, augment=slow) as stream:
        for step in itertools.count():
            start = time.perf_counter()
            stream.fetch(step)
            waited.append(time.perf_counter() - start)
            if step == 5:
                break
            time.sleep(0.1)
    assert np.median(waited[1:]) < 0.01
