"""internal_ops: a tensor of the machine on standard error (golden)."""

from __future__ import annotations

from tests.ipu.frontends.tensorflow.framework import ipu, launch, machine, session, tf

show = ipu.internal_ops.print_tensor


def test_a_tensor_of_a_program_is_shown(capfd):
    def program(x):
        show(x + 1, name="sum")
        return x

    with machine():
        launch(tf.function(program), tf.constant([0.5, 1.0], tf.half))
    assert "sum: [1.5 2. ]" in capfd.readouterr().err


def test_a_program_of_a_session_has_to_need_it(capfd):
    with machine(), session() as run:
        result = ipu.ipu_compiler.compile(lambda: [tf.constant(1.5), show(tf.constant(2.5))])
        run.run(result)
    assert "Const" in capfd.readouterr().err


def test_an_eager_tensor_is_shown_at_once(capfd):
    show(tf.constant(3))
    assert "tensor: 3" in capfd.readouterr().err
