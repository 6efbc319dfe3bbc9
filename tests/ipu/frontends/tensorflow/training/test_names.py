"""Optimisers under the vendor's names (golden)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.training import accumulation, cross_replica, map_gradient, names


@pytest.mark.parametrize("name", names.__all__)
def test_every_name_is_that_of_the_vendors_package(name):
    from tensorflow.python.ipu import optimizers

    assert getattr(optimizers, name) is getattr(names, name)


def test_modules_of_the_package_are_found():
    from tensorflow.python.ipu.optimizers import (
        cross_replica_optimizer,
        gradient_accumulation_optimizer,
        map_gradient_optimizer,
    )

    assert cross_replica_optimizer is cross_replica
    assert gradient_accumulation_optimizer is accumulation
    assert map_gradient_optimizer is map_gradient
