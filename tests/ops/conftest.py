"""What tests of ops share."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Fresh memory is NaN, so that an unwritten entry shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
