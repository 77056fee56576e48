"""Registries and the errors that users meet."""

import pytest

from graph_machine import errors
from graph_machine.errors import ConfigError, GraphMachineError, MissingExtraError, did_you_mean
from graph_machine.registry import Registry
from graph_machine.spaces import SPACES


def make() -> Registry[int]:
    registry: Registry[int] = Registry("condition", "graph-machine conditions")
    registry.add("gm", 1)
    registry.register("gm-rope")(2)
    return registry


def test_is_a_mapping_in_order_of_registration() -> None:
    registry = make()
    assert list(registry) == ["gm", "gm-rope"]
    assert len(registry) == 2
    assert dict(registry) == {"gm": 1, "gm-rope": 2}
    assert "gm" in registry
    assert "other" not in registry


def test_unknown_names_offer_the_nearest_and_the_listing() -> None:
    with pytest.raises(ConfigError) as caught:
        make()["gm-rop"]
    assert str(caught.value) == (
        "Unknown condition 'gm-rop'. Did you mean 'gm-rope'? "
        "List all with 'graph-machine conditions'."
    )


def test_without_a_near_name_all_are_told() -> None:
    with pytest.raises(ConfigError, match="'zzzzzz'"):
        SPACES["zzzzzz"]
    with pytest.raises(ConfigError, match="'wieght'"):
        SPACES["wieght"]


def test_a_clash_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'gm'"):
        make().add("gm", 3)


def test_a_class_may_be_defined_again_but_not_another_of_its_name() -> None:
    registry: Registry[type] = Registry("task")

    def cell() -> type:
        class Own:
            pass

        return Own

    registry.add("own", cell())
    again = registry.add("own", cell())  # a notebook's cell, run twice
    assert registry["own"] is again
    with pytest.raises(ConfigError, match="'own'"):
        registry.add("own", int)


def test_did_you_mean() -> None:
    assert did_you_mean("jont", ("joint", "conditional")) == " Did you mean 'joint'?"
    assert did_you_mean("x", ("joint", "conditional")) == ""
    assert did_you_mean("x", ()) == ""


def test_missing_extras_say_how_to_install_them() -> None:
    error = MissingExtraError("matplotlib", "analysis", "Drawing figures")
    assert isinstance(error, ImportError)
    assert str(error) == (
        "Drawing figures needs the package 'matplotlib': install it with "
        "pip install 'graph-machine[analysis]'"
    )


def test_every_error_is_ours_and_of_a_builtin_kind() -> None:
    kinds = [c for c in vars(errors).values() if isinstance(c, type)]
    kinds = [c for c in kinds if c.__module__ == errors.__name__ and c is not GraphMachineError]
    assert len(kinds) >= 7
    for kind in kinds:
        assert issubclass(kind, GraphMachineError)
        assert issubclass(kind, (ValueError, RuntimeError, ImportError, OSError))
