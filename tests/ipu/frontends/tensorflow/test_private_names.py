"""Private names of TensorFlow that the front end rests on: each is there in this version (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import tf

from tensorflow.python import pywrap_tfe  # isort: skip
from tensorflow.python.autograph.core import config  # isort: skip
from tensorflow.python.client import session  # isort: skip
from tensorflow.python.data.ops import dataset_ops, iterator_ops  # isort: skip
from tensorflow.python.eager import backprop, context, execute  # isort: skip
from tensorflow.python.eager.polymorphic_function import (  # isort: skip
    atomic_function, concrete_function,
)
from tensorflow.python.framework import func_graph, ops  # isort: skip
from tensorflow.python.ops import (  # isort: skip
    control_flow_util_v2, gen_dataset_ops, gen_resource_variable_ops, handle_data_util, script_ops,
)


def test_the_version_is_the_one_that_these_names_belong_to():
    assert tf.__version__.startswith("2.21.")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (pywrap_tfe, "TFE_Py_RegisterGradientFunction"), (backprop, "_gradient_function"),
        (ops.Graph, "_original_op"), (ops.Graph, "_attr_scope"), (ops.Graph, "_get_function"),
        (tf.Operation, "traceback"), (func_graph.FuncGraph, "captures"),
        (func_graph.FuncGraph, "capture"), (concrete_function.ConcreteFunction, "_call_flat"),
        (concrete_function.ConcreteFunction, "from_func_graph"),
        (atomic_function, "from_func_graph"), (dataset_ops, "_VariantDataset"),
        (dataset_ops.DatasetV2, "_variant_tensor"), (iterator_ops, "OwnedIterator"),
        (script_ops, "_py_funcs"), (execute, "quick_execute"), (context, "eager_mode"),
        (config, "CONVERSION_RULES"), (config, "DoNotConvert"), (session.BaseSession, "run"),
        (session.BaseSession, "close"), (session, "_FetchMapper"),
        (control_flow_util_v2, "get_func_graph"), (gen_dataset_ops, "iterator_get_next"),
        (gen_resource_variable_ops, "read_variable_op"),
        (gen_resource_variable_ops, "assign_variable_op"),
        (handle_data_util, "get_resource_handle_data"),
        (tf.keras.Model, "_validate_and_get_metrics_result"),
    ],
)
def test_the_name_is_there(owner, name):
    assert hasattr(owner, name)


def test_handles_know_their_data():
    handle = tf.Variable(1.0).handle
    assert handle._handle_data.shape_and_type[0].dtype == tf.float32.as_datatype_enum


def test_functions_of_the_host_are_found_by_their_token():
    with tf.Graph().as_default():
        node = tf.numpy_function(len, [tf.constant([1])], tf.int64).op
        assert script_ops._py_funcs.get(node.get_attr("token").decode()) is not None
