"""`pipelining_ops`: a model cut into stages on several IPUs."""
