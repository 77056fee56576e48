"""Answers between layers: what they are, and that their losses join the loss."""

import pytest
import torch

from graph_machine.lab.config import ExperimentConfig
from graph_machine.lab.tasks.sudoku.task import SudokuTask
from graph_machine.lab.training.trainer import Trainer
from support.runs import puzzle_store, recurrent, tiny

CORE = recurrent(rounds_min=None, rounds_start=None, grad_rounds=None)


@pytest.mark.parametrize("config", [tiny(), CORE], ids=["layers", "core"])
def test_answers_between_layers_join_the_loss(config: ExperimentConfig) -> None:
    """One for every layer before the answer; a layer's is that of the model cut off behind it."""
    task = SudokuTask(config.task).use(puzzle_store(40))

    def trainer(weight: float) -> Trainer:
        chosen = config.with_train(layer_loss=weight)
        return Trainer(chosen, task, seed=0, device=torch.device("cpu"))

    deep = trainer(0.5)
    added = deep.loss_of_step(0) - trainer(0.0).loss_of_step(0)
    batch, model = task.batch(0, config.train.batch_size, 0, 0.0), deep.model
    out = model(**batch.inputs, keep_layers=True)
    assert len(out.layer_logits) == config.model.num_layers - (model.core is None)
    losses = torch.stack([task.losses(each, batch).mean() for each in out.layer_logits])
    torch.testing.assert_close(added, 0.5 * losses.mean(), atol=1e-5, rtol=1e-4)
    assert model(**batch.inputs).layer_logits == ()
    model.stack.layers, model.core = model.stack.layers[:1], None
    torch.testing.assert_close(model(**batch.inputs).logits, out.layer_logits[0])
