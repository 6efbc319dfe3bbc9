"""Benchmarks: one file per topic, `timing` for all of them.

A topic's `cases(size, quick)` yields `timing.TimedCase` records: what is measured, a call, and a
reference call that is timed in the same run.
"""

#: Topic -> what it measures; the module of that name has `cases`.
TOPICS = {
    "round": "rounding binary32 into every format, mode and kind of data",
    "blocks": "rounding binary32 into block-scaled formats",
    "arith": "+ - * / sqrt fma of arrays",
    "functions": "exp log tanh ... of arrays, rounded correctly",
    "gemm": "matrix products: rounded per operation, through units, by BLAS",
    "compile": "how long each kernel of products takes to compile",
    "train": "training a network, beside what its matrix products would allow",
    "operations": "single operations with their gradients through PyTorch, beside torch's",
    "programs": "training steps of PyTorch programs, beside torch's",
    "learned": "training steps of a decoder in ipu.learn, beside torch's",
    "growth": "a training step by layers, width and batch, beside torch's",
    "graphs": "training steps of TensorFlow programs, beside TensorFlow's",
    "largest": "a training step of a decoder of GPT-2's smallest size, beside torch's",
    "updates": "a step of an optimiser over all parameters, beside torch's",
    "replicas": "a training step by the number of replicas",
    "digests": "a training step that writes a digest of every operation, beside itself without",
    "shadows": "a step of a decoder with shadows or digests, beside itself without",
    "startup": "import, first call, small arrays",
    "feed": "loops and queues, per iteration",
    "collectives": "sums between processes over gRPC and MPI, beside a copy and gloo",
}
