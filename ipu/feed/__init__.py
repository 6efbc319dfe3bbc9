"""Feeding a training: data sets, batches in a reproducible order, queues, loops on the device."""

from ipu.feed.counters import Counters, Launch, LaunchRecord, Waits, launch, record_launches
from ipu.feed.infeed import EndOfDataError, Infeed
from ipu.feed.loops import repeat, while_loop
from ipu.feed.outfeed import ALL, LAST, Outfeed
from ipu.feed.throughput import Benchmark, benchmark

__all__ = [
    "ALL", "LAST", "Benchmark", "Counters", "EndOfDataError", "Infeed", "Launch", "LaunchRecord",
    "Outfeed", "Waits", "benchmark", "launch", "record_launches", "repeat", "while_loop",
]
