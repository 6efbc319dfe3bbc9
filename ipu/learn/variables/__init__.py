"""The variables of a model: their names, scopes, initial values and custom getters."""

from ipu.learn.variables.getters import fp32_parameter_getter, policy_getter
from ipu.learn.variables.regularisers import l1_regularizer, l2_regularizer
from ipu.learn.variables.scope import (
    AUTO_REUSE,
    Getter,
    Variables,
    current_device,
    current_policy,
    get_variable,
    is_overridden,
    variable_scope,
)
from ipu.learn.variables.variable import Variable

__all__ = [
    "AUTO_REUSE", "Getter", "Variable", "Variables", "current_device", "current_policy",
    "fp32_parameter_getter", "get_variable", "is_overridden", "l1_regularizer", "l2_regularizer",
    "policy_getter", "variable_scope",
]
