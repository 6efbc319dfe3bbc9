"""What pipelines refuse (golden: the vendor's messages)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, tf
from tests.ipu.frontends.tensorflow.pipelining.networks import STAGES, pipelined, run

OPS = ipu.pipelining_ops
GROUPED, INTERLEAVED, SEQUENTIAL = OPS.PipelineSchedule
LAST = ipu.ipu_outfeed_queue.IPUOutfeedQueue(ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)

CASES = [
    ({"count": None}, ValueError, "gradient_accumulation_count must be specified."),
    ({"count": 0}, ValueError, "gradient_accumulation_count must be specified."),
    ({"count": -8}, ValueError, "gradient_accumulation_count=-8 is out of range"),
    ({"stages": STAGES[:1]}, ValueError, "Pipeline requires at least two computational stages."),
    ({"stages": STAGES[0]}, TypeError, "computational_stages argument needs to be a list or a tup"),
    ({"device_mapping": [0, 1]}, ValueError,
     "Each stage must be mapped to an IPU: 2 mappings != 4 stages"),
    ({"device_mapping": [0, 1, 2, 4]}, ValueError,
     "device_mapping=[0, 1, 2, 4] names an IPU that the machine does not have; use 0 to 3"),
    ({"device_mapping": 3}, TypeError, "device_mapping argument needs to be a list or a tuple."),
    ({"device_mapping": [0, 1, 1, 0], "pipeline_schedule": INTERLEAVED}, NotImplementedError,
     "The pipelining schedule 'Interleaved' does not currently support multiple"),
    ({"pipeline_schedule": "Grouped"}, TypeError,
     "The given pipeline_schedule is not a member of the PipelineSchedule enumeration."),
    ({"recomputation_mode": 1}, TypeError,
     "The given recomputation_mode is not a member of the RecomputationMode enumeration."),
    ({"batch_serialization_iterations": 2, "pipeline_schedule": GROUPED}, NotImplementedError,
     "Batch serialization is only supported with the `Sequential` schedule."),
    ({"batch_serialization_iterations": 2, "device_mapping": [0, 1, 2, 3]}, NotImplementedError,
     "When using batch serialization, all the pipeline stages need to be mapped to a single IPU."),
    ({"batch_serialization_iterations": 2, "reduction_method": "MEAN"}, ValueError,
     "Batch serialization is only supported with the SUM reduction method."),
    ({"continuous_weight_updates": True}, NotImplementedError,
     "Continuous weight updates are currently not supported."),
    ({"outfeed_loss": True, "optimizer_function": None}, ValueError,
     "An optimizer_function must be provided when outfeed_loss is True"),
    ({"outfeed_mask": [True], "optimizer_function": None}, ValueError,
     "An optimizer_function must be provided when outfeed_mask is specified."),
    ({"outfeed_loss": True, "outfeed_mask": [True]}, ValueError, "Only one of `outfeed_loss`"),
    ({"outfeed_loss": True, "outfeed_queue": None}, ValueError,
     "An outfeed_queue must be provided when outfeed_loss is True"),
    ({"accumulate_outfeed": True, "outfeed_queue": None}, ValueError,
     "An outfeed_queue must be provided when accumulate_outfeed is True."),
    ({"accumulate_outfeed": True, "outfeed_queue": LAST}, ValueError,
     "To accumulate the outfeed, it must be in IPUOutfeedMode ALL."),
    ({"infeed_queue": [1]}, TypeError,
     "infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue"),
    ({"outfeed_queue": [1]}, TypeError,
     "outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue"),
    ({"count": 10}, tf.errors.FailedPreconditionError,
     "The number of iterations of the pipeline must be a multiple of 8, but it is 10"),
    ({"count": 6, "pipeline_schedule": INTERLEAVED}, tf.errors.FailedPreconditionError,
     "The number of iterations of the pipeline must be a multiple of 4, but it is 6"),
    ({"forward_propagation_stages_poplar_options": [OPS.PipelineStageOptions()]}, ValueError,
     "forward_propagation_stages_poplar_options must be a list or a tuple of PipelineStageOptions"),
    ({"replicated_optimizer_state_sharding": True, "offload_weight_update_variables": False},
     ValueError, "the optimizer state must be offloaded"),
    ({"optimizer_function": lambda loss: loss}, TypeError,
     "optimizer_function must return OptimizerFunctionOutput"),
    ({"accumulate_outfeed_dtype": tf.float32}, ValueError, "needs accumulate_outfeed=True"),
]


@pytest.mark.source("graphcore/tensorflow, pipelining_ops.py, pipeline_util.cc")
@pytest.mark.parametrize(("options", "kind", "sentence"), CASES)
def test_a_pipeline_that_cannot_be_is_refused(options, kind, sentence):
    with pytest.raises(kind) as refused:
        run(pipelined(**options))
    assert sentence in str(refused.value)
