"""A training whose replicas poprun has dealt: PROGRAM [REPLICAS [STEPS]].

With REPLICAS this process has all of them, without poprun. Prints the number of the process, the
digests of weights and slots and of the buffers of each replica, and that of the losses.
"""

import hashlib
import sys

from ipu.frontends import popdist, poptorch
from ipu.frontends.popdist.poptorch import Options
from tests.ipu.frontends.poptorch.framework import STRATEGIES, Net, data, options, sgd, torch

COUNT, BATCH = 3, 4


def digest(tensors):
    total = hashlib.sha256()
    for x in tensors:
        total.update(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def own_samples(step, total, first, local):
    """Those of this process's replicas: sample block (m, r) belongs to micro-batch m, replica r."""
    x, y = data(COUNT * total * BATCH, seed=step)
    samples = slice(first, first + local)
    return tuple(
        t.reshape(COUNT, total, BATCH, *t.shape[1:])[:, samples].reshape(-1, *t.shape[1:])
        for t in (x, y)
    )


def train(replicas=0, steps=3, *, automatic=False, strategy="unsplit"):
    """What this process has at the end."""
    run_options = options(STRATEGIES[strategy](), COUNT, replicas=replicas or 1).randomSeed(5)
    if not replicas:
        base = Options()
        run_options.replicationFactor(base.replication_factor)
        run_options.Distributed.configureProcessId(
            base.Distributed.processId, base.Distributed.numProcesses
        )
    run_options.Training.setAutomaticLossScaling(automatic)
    run_options.autoRoundNumIPUs()
    net = Net().half()
    with torch.no_grad():  # the first process's weights are those of all
        for p in net.parameters():
            p += popdist.getInstanceIndex()
    model = poptorch.trainingModel(net, run_options, sgd(net.parameters()))
    first = 0 if replicas else popdist.getReplicaIndexOffset()
    local = run_options.replication_factor
    total = replicas or popdist.getNumTotalReplicas()
    losses = [model(*own_samples(step, total, first, local))[1] for step in range(steps)]
    checkpoint = model.checkpoint()
    states = checkpoint["optimizer"]["state"].values()
    slots = [x for state in states for _, x in sorted(state.items()) if torch.is_tensor(x)]
    buffers = [net, *model._executor.models[1:]]
    return {
        "process": popdist.getInstanceIndex(),
        "weights": digest([*net.parameters(), *slots]),
        "buffers": [digest(replica.buffers()) for replica in buffers],
        "losses": [digest(row) for row in by_replica(losses, local)],
        "scale": model._executor.scaling.value,
    }


def by_replica(losses, local):
    """The losses of each replica, of calls whose losses are those of (m, r)."""
    rows = torch.stack([x.reshape(COUNT, local) for x in losses])
    return [rows[:, :, r] for r in range(local)]


if __name__ == "__main__":
    told = train(*map(int, sys.argv[1:3]), automatic="automatic" in sys.argv)
    print(*(f"{name}={value}" for name, value in told.items()), sep=";", flush=True)
