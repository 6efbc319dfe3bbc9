"""Without TensorFlow every test in here is skipped, with the reason."""

from tests.ipu.frontends.tensorflow import framework  # noqa: F401
