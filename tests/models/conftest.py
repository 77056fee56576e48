import pytest

from graph_machine.graphs import batches


@pytest.fixture(autouse=True)
def _buckets_of_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs go into several buckets, as large ones do."""
    monkeypatch.setattr(batches, "BUCKET", 0)
