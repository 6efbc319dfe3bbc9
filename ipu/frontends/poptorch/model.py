"""Models on the machine: what `trainingModel` and `inferenceModel` return.

A model is compiled at its first call: traced, cut into stages, planned. Parameters are those of the
user's model all the time, so a training and an inference of one model share them, and copies to
and from the device have nothing to do.

Source    Graphcore's PopTorch, python/_poplar_executor.py and its user guide.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ipu import ops
from ipu.feed.pace import pace_of
from ipu.frontends.poptorch.dictionary import once
from ipu.frontends.poptorch.engine.compiled import Compiled
from ipu.frontends.poptorch.engine.executables import Executables
from ipu.frontends.poptorch.engine.gradients import as_array
from ipu.frontends.poptorch.engine.machine import PoptorchMachine
from ipu.frontends.poptorch.engine.processes import join
from ipu.frontends.poptorch.engine.update import Updater, taken
from ipu.frontends.poptorch.enums import ConnectionType
from ipu.frontends.poptorch.optim import check_optimizer, load_slots
from ipu.frontends.poptorch.options import Options
from ipu.frontends.poptorch.outputs import assemble, cut, flatten, rebuild
from ipu.frontends.poptorch.profile import UNMODELLED, folder_of_reports
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.plan.explain import explain
from ipu.plan.memory import StageFigures
from ipu.plan.plan import Plan
from ipu.plan.trace import write_profile
from ipu.run.showing import Report

__all__ = ["PoplarExecutor", "inferenceModel", "load", "trainingModel"]

logger = logging.getLogger("poptorch")


class PoplarExecutor:
    """A model that is called with the samples of deviceIterations · G · R micro-batches.

    model      the user's; its parameters are trained in place.
    options    frozen when the model is compiled.

    Raises    (at a call) ValueError for stages, blocks, batches and options that do not go
              together, in one sentence each; FloatingPointTrap where exceptions are enabled.

    >>> model = inferenceModel(torch.nn.Linear(2, 1, bias=False), Options().deviceIterations(3))
    >>> model.isCompiled(), model(torch.ones(3, 2)).shape, model.compilations
    (False, torch.Size([3, 1]), 1)
    >>> model(torch.ones(4, 2))
    Traceback (most recent call last):
    ...
    ValueError: a batch of 4 samples is no multiple of 3, which is deviceIterations=3 times
    gradientAccumulation=1 times replicationFactor=1; use 3 samples, or a poptorch.DataLoader with
    drop_last=True
    """

    def __init__(
        self, model: torch.nn.Module, options: Options | None, training: bool,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"model={type(model).__name__} is not a torch.nn.Module; wrap it in one"
            )
        if options is not None and not isinstance(options, Options):
            raise TypeError(f"options={type(options).__name__} is not a poptorch.Options")
        self.model = model
        self._options = Options() if options is None else options
        self._training = training
        self._optimizer = optimizer
        #: The optimiser's groups when it was last handed over: changes need `setOptimizer`.
        self._groups = [] if optimizer is None else taken(optimizer)
        self._executor: Compiled | None = None
        self._signature: Any = None
        #: Its programs, by the shapes of their inputs.
        self.executables = Executables()
        self._is_attached = False
        self._is_destroyed = False
        self._restored: dict[str, Any] | None = None

    @property
    def options(self) -> Options:
        """Those that the model was wrapped with."""
        return self._options

    @property
    def optimizer(self) -> torch.optim.Optimizer | None:
        """What updates the parameters; None for an inference."""
        return self._optimizer

    def __getattr__(self, name: str) -> Any:
        """What the wrapper lacks is asked of the model: state_dict, named_parameters …"""
        if name.startswith("__") or "model" not in self.__dict__:
            raise AttributeError(name)
        if name in UNMODELLED:
            raise AttributeError(f"{name}: {UNMODELLED[name]}")
        return getattr(self.__dict__["model"], name)

    # Compiling ------------------------------------------------------------------------------

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Trace the model and make its plan, without running it."""
        self._check_alive()
        batches = self._batches(args, kwargs)
        self._take_program(batches[0], _signature(args, kwargs))

    @property
    def compilations(self) -> int:
        """How often the model was compiled: once for inputs of other shapes."""
        return len(self.executables)

    def isCompiled(self) -> bool:
        """Whether there is a plan."""
        return self._executor is not None

    def getTensorNames(self) -> list[str]:
        """Names of the tensors of the compiled model: parameters and buffers, by their paths.

        PopART names results of operations too, by numbers of its own graph; here they have none.

        Raises    AssertionError for a model that is not compiled, as PopTorch does.
        """
        if not self.isCompiled():
            raise AssertionError("Model must be compiled before calling getTensorNames")
        once("getTensorNames", "results of operations have no names of PopART's", is_partial=True)
        model = self.model
        return [name for name, _ in (*model.named_parameters(), *model.named_buffers())]

    def _take_program(self, first: Any, signature: Any) -> None:
        """The program for inputs of these shapes is the one that runs."""
        if self._executor is not None and signature == self._signature:
            return
        program = self.executables.switched(signature, self._executor)
        if program is not None:
            self._executor, self._signature = program, signature
            return
        with self.executables.compiling():
            self._compile(first, signature)

    def _compile(self, first: Any, signature: Any) -> None:
        options = self._options
        precision = options.Precision
        traps = precision.enable_floating_point_exceptions
        control = FpCtl(
            inv=traps, div0=traps, oflo=traps, nanoo=traps,
            esr=precision.enable_stochastic_rounding,
        )
        seed = options.random_seed if options.exists("random_seed") else 0
        previous = self._executor
        machine = (
            previous.machine if previous
            else PoptorchMachine(control, seed, precision.partials_type)
        )
        updater = None
        if self._training:
            assert self._optimizer is not None
            updater = Updater(machine, self._optimizer, self._groups)
        machine.first_replica = options.Distributed.processId * options.replication_factor
        processes = previous.processes if previous else None
        if self._training and previous is None:
            processes = join(options, machine.session)
        models = previous.models if previous else [self.model]
        executor = Compiled(models, options, machine, updater, processes)
        with self._in_mode():
            executor.compile(first)
            executor.start(fresh=previous is None)
        if previous is not None and previous.scaling is not None:
            executor.scaling = previous.scaling
        self._executor, self._signature = executor, signature
        self.executables.keep(signature, executor)
        options.freeze()
        self._restore_kept()
        logger.debug("compiled: %s", str(executor.plan).replace("\n", "; "))

    @contextmanager
    def _in_mode(self) -> Iterator[None]:
        """The model is in training or evaluation mode inside, and as it was afterwards."""
        before = [(module, module.training) for module in self.model.modules()]
        copies = self._executor.models[1:] if self._executor else []
        for model in (self.model, *copies):
            model.train(self._training)
        try:
            yield
        finally:
            for module, was in before:
                module.training = was

    @property
    def plan(self) -> Plan:
        """What runs when, on which IPU.

        Raises    RuntimeError before the model is compiled.
        """
        return self._compiled().plan

    @property
    def device(self) -> Device:
        """Whose arithmetic it is.

        Raises    RuntimeError before the model is compiled.
        """
        return self._compiled().machine.device

    def _compiled(self) -> Compiled:
        if self._executor is None:
            raise RuntimeError("the model is not compiled yet; call it, or its compile(…), first")
        return self._executor

    # Calling --------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, by the output mode of the options."""
        self._check_alive()
        if self._options.connection_type == ConnectionType.Never.value:
            raise RuntimeError(
                "ConnectionType.Never: this model can be compiled, not run; use "
                "options.connectionType(poptorch.ConnectionType.Always)"
            )
        args, kwargs = self._synthetic((args, kwargs))
        batches = self._batches(args, kwargs)
        signature = _signature(args, kwargs)
        self._take_program(batches[0], signature)
        executor = self._compiled()
        self._is_attached = True
        self._options.feeding.look(
            x.numpy(force=True) for x in flatten((args, kwargs)) if x.is_floating_point()
            and x.dtype is not torch.bfloat16
        )
        was_measured = executor.meter.figures is not None
        with self._in_mode():
            outputs = executor.call(batches)
            result = self._assembled(executor, outputs)
        folder = self._options.profile_dir or folder_of_reports()
        if folder is not None and not was_measured:
            self.writeProfile(folder)
        return result

    def _batches(self, args: Any, kwargs: Any) -> list[Any]:
        options = self._options
        count = options.Training.gradient_accumulation if self._training else 1
        parts = options.device_iterations * count * options.replication_factor
        what = (
            f"deviceIterations={options.device_iterations} times gradientAccumulation={count} "
            f"times replicationFactor={options.replication_factor}"
        )
        return cut((args, kwargs), parts, what)

    def _synthetic(self, arguments: Any) -> Any:
        """Random normal inputs, where the options ask for synthetic data."""
        if not self._options._Popart.options.get("syntheticDataMode"):
            return arguments
        return rebuild(
            arguments, lambda x: torch.randn_like(x) if x.is_floating_point() else x.clone()
        )

    def _assembled(self, executor: Compiled, outputs: list[Any]) -> Any:
        options = self._options
        mode = options.mode_of_outputs(training=self._training)
        machine = executor.machine

        def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if not x.is_floating_point():
                return x + y
            with machine.running():
                a, b = as_array(machine, x), as_array(machine, y)
                machine.session.call("poptorch.sum_of_outputs")  # the place of its random bits
                return machine.session.memory.write(ops.add.value(machine.device, a, b), x.dtype)

        return assemble(
            outputs, mode, options.output_return_period, options.replication_factor, add
        )

    # Weights and optimiser ------------------------------------------------------------------

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Go on with other arguments of the optimiser; its state is taken over.

        Raises    RuntimeError for an inference, ValueError for other parameters.
        """
        if not self._training or self._optimizer is None:
            raise RuntimeError("setOptimizer: an inference model has no optimiser")
        check_optimizer(optimizer)
        old = [p for group in self._optimizer.param_groups for p in group["params"]]
        new = [p for group in optimizer.param_groups for p in group["params"]]
        if [id(p) for p in old] != [id(p) for p in new]:
            raise ValueError(
                "setOptimizer: the optimiser has other parameters than the one before; pass the "
                "same model's parameters in the same order"
            )
        if optimizer is not self._optimizer:
            optimizer.state.update(self._optimizer.state)
        self._take(optimizer)

    def _take(self, optimizer: torch.optim.Optimizer) -> None:
        """The device gets to know the optimiser's arguments."""
        self._optimizer, self._groups = optimizer, taken(optimizer)
        if self._executor is not None:
            updater = Updater(self._executor.machine, optimizer, self._groups)
            self._executor.updater = updater
            assert self._executor.scaling is not None
            self._executor.scaling.change(updater.loss_scaling)

    def copyWeightsToHost(self) -> None:
        """Nothing to do: parameters are the model's own."""
        self._check_alive()

    def copyWeightsToDevice(self) -> None:
        """Nothing to do: parameters are the model's own."""
        self._check_alive()

    def load_state_dict(self, state_dict: Any, strict: bool = True) -> Any:
        """Load the model's weights."""
        return self.model.load_state_dict(state_dict, strict=strict)

    # Devices --------------------------------------------------------------------------------

    def isAttachedToDevice(self) -> bool:
        """Whether it holds its IPUs: from its first call on, until `detachFromDevice`."""
        return self._is_attached

    def attachToDevice(self) -> None:
        """Take the IPUs again.

        Raises    RuntimeError for a model that is not compiled, or attached.
        """
        self._check_alive()
        self._compiled()
        if self._is_attached:
            raise RuntimeError("attachToDevice: the model is attached already")
        self._is_attached = True

    def detachFromDevice(self) -> None:
        """Give the IPUs free; weights and state stay.

        Raises    RuntimeError for a model that is not attached.
        """
        self._check_alive()
        if not self._is_attached:
            raise RuntimeError("detachFromDevice: the model is not attached; call it first")
        self._is_attached = False

    def destroy(self) -> None:
        """Forget the plan; the model cannot be called any more."""
        self._executor, self._is_attached, self._is_destroyed = None, False, True

    def _check_alive(self) -> None:
        if self._is_destroyed:
            raise RuntimeError("the model was destroyed; wrap it again")

    # Reports --------------------------------------------------------------------------------

    def report(self, folder: str | Path | None = None) -> Report:
        """What the machine did, as of `fpsim.torch.machine`; with the plan in words.

        After a call the plan tells what it takes of the IPUs' time and memory too.

        folder    where the page is written too: index.html, report.json, report.txt.
        """
        executor = self._compiled()
        plan, figures = executor.plan, executor.meter.figures
        words = str(plan) if figures is None else explain(plan, figures, self.device.target)
        lines = [*words.splitlines(), self.executables.told(plan, figures, self.device.target)]
        feeding = self._options.feeding
        if feeding.elements and figures is not None:
            make = feeding.each / self._options.device_iterations
            lines.append(pace_of(make, plan, figures, self.device.target).line)
        inputs = feeding.inputs or []
        return executor.machine.session.told(folder, plan=lines, inputs=inputs)

    @property
    def profile_figures(self) -> tuple[StageFigures, ...]:
        """What each stage costs, by the first call.

        Raises    RuntimeError before it.
        """
        figures = self._compiled().meter.figures
        if figures is None:
            raise RuntimeError("nothing has been measured yet; call the model first")
        return figures

    def writeProfile(self, folder: str | Path) -> list[Path]:
        """Write schedule, account of memory and timeline of an update as JSON.

        Raises    RuntimeError before the first call.
        """
        return write_profile(Path(folder), self.plan, self.profile_figures)

    # Checkpoints ----------------------------------------------------------------------------

    def checkpoint(self) -> dict[str, Any]:
        """What goes on bit by bit after `restore`: weights, state of the optimiser, step, scale."""
        executor = self._executor
        scaling = executor.scaling.state() if executor and executor.scaling else None
        copies = executor.models[1:] if executor else []
        return {
            "model": self.model.state_dict(),
            "buffers": [dict(model.named_buffers()) for model in copies],
            "optimizer": None if self._optimizer is None else self._optimizer.state_dict(),
            "step": executor.machine.session.step if executor else 0,
            "scaling": scaling,
        }

    def restore(self, checkpoint: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(checkpoint["model"])
        if self._optimizer is not None and checkpoint["optimizer"] is not None:
            self._optimizer.load_state_dict(checkpoint["optimizer"])
            load_slots(self._optimizer, checkpoint["optimizer"])
            self._take(self._optimizer)
        self._restored = checkpoint
        if self._executor is not None:
            self._restore_kept()

    def _restore_kept(self) -> None:
        checkpoint, self._restored = self._restored, None
        if checkpoint is None or self._executor is None:
            return
        executor = self._executor
        executor.machine.session.go_on_at(checkpoint["step"])
        if executor.scaling is not None:
            executor.scaling.restore(checkpoint["scaling"])
        for model, buffers in zip(executor.models[1:], checkpoint["buffers"], strict=False):
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])

    def save(self, path: str | Path) -> None:
        """Write the wrapper to a file that `poptorch.load` reads: model, options, checkpoint.

        Raises    what pickling raises for a model that cannot be pickled.
        """
        torch.save(
            {"model": self.model, "options": self._options.clone(), "training": self._training,
             "optimizer": self._optimizer, "checkpoint": self.checkpoint()},
            path,
        )


def _signature(args: Any, kwargs: Any) -> tuple[Any, ...]:
    """Shapes and types of the inputs: another one is another program."""
    return tuple((tuple(x.shape), x.dtype) for x in flatten((args, kwargs)))


def trainingModel(
    model: torch.nn.Module, options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model that trains with each call; without an optimiser by SGD with a rate of 0.01.

    Raises    TypeError for what is no module, options or optimiser of PopTorch's.

    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = torch.nn.Linear(1, 1, bias=False)
    ...         torch.nn.init.ones_(self.layer.weight)
    ...
    ...     def forward(self, x):
    ...         return torch.nn.functional.mse_loss(self.layer(x), torch.zeros_like(x))
    >>> net = Net()
    >>> trainingModel(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.25))(torch.ones(1, 1))
    tensor([1.])
    >>> net.layer.weight.item()  # 1 - 0.25 · 2
    0.5
    """
    if optimizer is None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    check_optimizer(optimizer)
    return PoplarExecutor(model, options, True, optimizer)


def inferenceModel(model: torch.nn.Module, options: Options | None = None) -> PoplarExecutor:
    """A model that computes outputs without gradients, in evaluation mode.

    >>> model = inferenceModel(torch.nn.Dropout(0.5))
    >>> model(torch.ones(1, 3))
    tensor([[1., 1., 1.]])
    """
    if isinstance(model, PoplarExecutor):
        model = model.model
    return PoplarExecutor(model, options, False)


def load(path: str | Path, edit_opts_fn: Any = None) -> PoplarExecutor:
    """A wrapper that `save` wrote; the file is trusted, for it holds pickled objects.

    edit_opts_fn    may change its options.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     inferenceModel(torch.nn.ReLU()).save(f"{folder}/model.pt")
    ...     loaded = load(f"{folder}/model.pt", lambda options: options.deviceIterations(2))
    >>> loaded(torch.tensor([-1.0, 1.0])), loaded.options.device_iterations
    (tensor([0., 1.]), 2)
    """
    contents = torch.load(path, weights_only=False)
    options = contents["options"]
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    executor = PoplarExecutor(
        contents["model"], options, contents["training"], contents["optimizer"]
    )
    executor.restore(contents["checkpoint"])
    return executor
