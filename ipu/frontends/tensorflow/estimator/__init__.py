"""`IPUEstimator`, and the part of `tf.estimator` that its programs use."""
