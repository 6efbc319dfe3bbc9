"""Recipes of blocks in TensorFlow programs: the law of dense layers, what is outside (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, tf
from tests.ipu.ops.dense_law import KINDS, convolution_passes, images, layer_passes, operands

from fpsim.tf import machine  # isort: skip
from ipu.run.places import Place  # isort: skip

SHAPE = 20, 40, 24


def passes(policy, product, shapes=None, values=None):
    """y, dx and dw of a product of x with a variable, by a tape in one launch."""
    x, w, dy = values or operands(*SHAPE)
    places = {}
    with machine(policy, seed=3) as run:
        run.watch(lambda event: places.setdefault(
            (event.place.layer, event.place.direction), event.place))
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        strategy = ipu.ipu_strategy.IPUStrategy()
        with strategy.scope():
            weight = tf.Variable(w, name="layer/kernel")
            if shapes:
                x, dy = x.reshape(shapes[0]), dy.reshape(shapes[1])

            @tf.function(jit_compile=True)
            def step(x, dy):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = product(x, weight)
                dx, dw = tape.gradient(y, [x, weight], dy)
                return y, dx, dw

            results = [v.numpy() for v in strategy.run(step, [tf.constant(x), tf.constant(dy)])]
    return results, [name for name, direction in places if "MatMul" in name], run


def place(name, direction):
    return Place(0, 0, 0, name, direction)


@pytest.mark.parametrize("name", [k for k in KINDS if k not in ("nvfp4", "mxfp4+sr34+rht64")])
def test_a_dense_layer_has_the_bits_of_the_rows(name):
    results, _, run = passes(name, tf.matmul)
    for one, other in zip(results, layer_passes(name, SHAPE), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}


@pytest.mark.parametrize("name", ["nvfp4", "mxfp4+sr34+rht64"])
def test_random_bits_are_those_of_the_rows_at_the_nodes_places(name):
    results, nodes, _ = passes(name, tf.matmul)
    forward, *gradients = sorted(nodes, key=len)
    for i, (node, one) in enumerate(zip(sorted(gradients), results[1:], strict=True)):
        rows = layer_passes(name, SHAPE, place(forward, "forward"), place(node, "backward"),
                            order=(i, 1 - i))
        np.testing.assert_array_equal(results[0], rows[0])
        np.testing.assert_array_equal(one, rows[1 + i])


@pytest.mark.parametrize("write", [
    lambda x, w: tf.matmul(x, tf.transpose(w), transpose_b=True),
    lambda x, w: tf.transpose(tf.matmul(w, x, transpose_a=True, transpose_b=True)),
    lambda x, w: tf.transpose(tf.matmul(tf.transpose(w), tf.transpose(x))),
])
def test_weights_are_known_however_the_product_is_written(write):
    results, _, run = passes("mxfp8", write)
    for one, other in zip(results, layer_passes("mxfp8", SHAPE), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}


def test_sequences_are_the_same_layer():
    shapes = (2, 10, 40), (2, 10, 24)
    results, _, _ = passes("nvfp4-plain", lambda x, w: tf.tensordot(x, w, 1), shapes)
    for one, other in zip(results, layer_passes("nvfp4-plain", SHAPE), strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)


@pytest.mark.parametrize("name", ["mxfp8", "fp8-current", "nvfp4-plain+wgrad=bf16"])
def test_a_convolution_has_the_bits_of_the_rows(name):
    x, w, dy = images((2, 7, 6, 8), (3, 2, 8, 16), 2)
    results, _, run = passes(name, lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"), values=(x, w, dy))
    for one, other in zip(results, convolution_passes(name, x, w, dy, stride=2), strict=True):
        np.testing.assert_array_equal(one, other)
    assert run.device.blocks.outside == {}


@pytest.mark.parametrize("write", [
    lambda x, w: tf.einsum("btk,kn->btn", x, w), lambda x, w: tf.einsum("kn,btk->btn", w, x),
    lambda x, w: tf.matmul(x, w[None]),
])
def test_einsums_and_batches_with_a_variable_are_its_layer(write):
    shapes = (1, 20, 40), (1, 20, 24)
    results, _, run = passes("mxfp8", write, shapes)
    for one, other in zip(results, layer_passes("mxfp8", SHAPE), strict=True):
        np.testing.assert_array_equal(one.reshape(other.shape), other)
    assert run.device.blocks.outside == {}


def test_depthwise_and_transposed_convolutions_are_told():
    x, w, _ = images((1, 6, 6, 8), (3, 3, 8, 1), 1)

    def product(x, w):
        return tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME") + tf.nn.conv2d_transpose(
            x, tf.reshape(w, (3, 3, 8, 1)) * tf.ones((1, 1, 1, 8)), (1, 6, 6, 8), 1)

    with pytest.warns(RuntimeWarning, match="is none and computes in bfloat16"):
        _, _, run = passes("mxfp8", product, values=(x, w, np.ones((1, 6, 6, 8), "f4")))
    assert {operation for _, operation in run.device.blocks.outside} == {
        "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter", "Conv2D", "Conv2DBackpropInput",
        "Conv2DBackpropFilter",
    }


def test_products_of_activations_are_told():
    def product(x, w):
        y = tf.matmul(x, w)
        return y + 0 * tf.matmul(tf.matmul(x, x, transpose_b=True), y)

    with pytest.warns(RuntimeWarning, match="MatMul of .* is none and computes in bfloat16"):
        results, _, run = passes("nvfp4-plain", product)
    assert {operation for _, operation in run.device.blocks.outside} == {"MatMul"}
    np.testing.assert_array_equal(results[0], layer_passes("nvfp4-plain", SHAPE)[0])
    assert run.report()["uncovered"]


def test_targets_and_steps_of_delayed_scales():
    with pytest.raises(ValueError, match="recipe=nvfp4 with target=mk2, which has no unit"):
        machine("nvfp4", target="mk2")
    x, *_ = operands(*SHAPE)
    with machine("fp8-delayed") as run:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = tf.keras.Sequential([
                tf.keras.layers.Input((40,)), tf.keras.layers.Dense(24, name="only")])
            model.compile(tf.keras.optimizers.SGD(0.0), "mse")
            model.fit(x[:16], np.zeros((16, 24), "f4"), batch_size=4, shuffle=False, verbose=0)
    scales = {operand: scale for _, operand, scale in run.device.blocks.delayed}
    assert len(scales["x"].history) == 3  # the fourth step's joins when the fifth begins
    assert scales["x"].history == tuple(
        float(np.abs(x[4 * i : 4 * i + 4]).max()) for i in range(3))


def keras_model():
    model = tf.keras.Sequential([
        tf.keras.layers.Input((40,)), tf.keras.layers.Dense(24, name="only")])
    model.compile(tf.keras.optimizers.SGD(0.01), "mse")
    return model


def fitted(model, steps):
    """Losses of these steps."""
    losses = []
    for step in steps:
        x, *_ = operands(16, 40, 24, seed=step)
        history = model.fit(8 * x, x[:, :24], batch_size=16, verbose=0)
        losses += history.history["loss"]
    return losses


def in_strategy():
    tf.keras.backend.clear_session()
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def scales_of(run):
    return {name: (s.scale, s.history) for _, name, s in run.device.blocks.delayed}


@pytest.mark.parametrize("keeper", ["checkpoint", "weights"])
@pytest.mark.parametrize("first", [1, 3])
def test_delayed_scales_go_on_from_a_checkpoint_of_tensorflow(tmp_path, keeper, first):
    with machine("fp8-delayed") as run, in_strategy():
        whole = fitted(keras_model_of(0), range(6))
        wanted = scales_of(run)
    with machine("fp8-delayed"), in_strategy():
        model = keras_model_of(0)
        begun = fitted(model, range(first))
        if keeper == "weights":
            model.save_weights(str(tmp_path / "model"))
        else:
            path = tf.train.Checkpoint(model=model).write(str(tmp_path / "model"))
            assert path == str(tmp_path / "model")
    assert (tmp_path / "model.delayed-scales.json").is_file()
    with machine("fp8-delayed") as run, in_strategy():
        model = keras_model_of(1)
        if keeper == "weights":
            model.load_weights(str(tmp_path / "model"))
        else:
            tf.train.Checkpoint(model=model).read(str(tmp_path / "model"))
        rest = fitted(model, range(first, 6))
        assert scales_of(run) == wanted
    assert begun + rest == whole


def keras_model_of(seed):
    tf.keras.utils.set_random_seed(seed)
    return keras_model()


def test_weights_in_one_file_have_no_scales_and_say_so(tmp_path):
    with machine("fp8-delayed"), in_strategy():
        model = keras_model_of(0)
        fitted(model, range(1))
        with pytest.warns(RuntimeWarning, match="holds no delayed scales: a training that goes on"):
            model.save_weights(str(tmp_path / "model.h5"))
    with machine("mxfp8"), in_strategy():
        model = keras_model_of(0)
        fitted(model, range(1))
        model.save_weights(str(tmp_path / "model"))
    assert not list(tmp_path.glob("*scales*"))


def of_dense_layers(policy):
    """Losses of three steps of a network of four dense layers, and what patterns by order meant."""
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((16, 16)).astype("f4"), np.arange(16) % 4
    with machine(policy, seed=3) as run:
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        with ipu.ipu_strategy.IPUStrategy().scope():
            tf.keras.utils.set_random_seed(2)
            layers = [tf.keras.layers.Dense(16, "tanh", name=f"hidden{i}") for i in range(3)]
            inputs = tf.keras.Input((16,), batch_size=8)
            value = inputs
            for layer in layers:
                value = layer(value)
            outputs = tf.keras.layers.Dense(4, name="head")(value)
            model = tf.keras.Model(inputs, outputs)
            loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss, steps_per_execution=2)
            history = model.fit(x, labels, batch_size=8, epochs=3, shuffle=False, verbose=0)
            model.evaluate(x, labels, batch_size=8, verbose=0)
    return history.history["loss"], run.report()["by_order"]


def test_the_last_layers_are_those_whose_variables_the_program_uses_last():
    ordered, by_order = of_dense_layers("nvfp4-plain+last2=bf16")
    assert ordered == of_dense_layers("nvfp4-plain+hidden2=bf16+head=bf16")[0]
    assert ordered != of_dense_layers("nvfp4-plain")[0]
    assert by_order == {"last2": ["hidden2", "head"]}


def test_more_last_layers_than_a_program_has_are_refused():
    with pytest.raises(ValueError, match="'last5' asks for 5 of 4 layers with weights"):
        of_dense_layers("nvfp4-plain+last5=bf16")
