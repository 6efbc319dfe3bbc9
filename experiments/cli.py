"""The `fpsim` command: a table of commands, each imported only when it is used.

Bad input ends in one line on standard error and exit status 2; ^C in 130; a failed check in 1.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import click

from ipu.installation import DISTRIBUTION, conflict

#: Command -> (module of ipu.experiments.commands, one line of help). The module's `command` runs.
COMMANDS = {
    "list": ("listing", "Show experiments, formats, units."),
    "run": ("run", "Run experiments by name."),
    "report": ("report", "Run the default report, or all of it."),
    "compare": ("compare", "Set two reports side by side, to the bit."),
    "paper": ("paper", "Write results as SVG, PDF, LaTeX and BibTeX."),
    "sweep": ("sweep", "Run an experiment with many seeds and settings, on Dask."),
    "show": ("show", "Take a number or a code apart in a format."),
    "profile": ("profile", "Say what formats would do to your arrays."),
    "verify": ("verify", "Check the arithmetic against vectors and definitions."),
    "vectors": ("vectors", "Write test vectors for hardware, hard cases first."),
    "fingerprint": ("fingerprint", "Find out from outside what matrix units do."),
    "torch": ("programs.torch", "Run a PyTorch program on the simulated machine."),
    "diagnose": ("programs.diagnose", "Say what hurts a PyTorch program, and what mends it."),
    "plan": ("programs.plan", "Say which plan a PyTorch program should have on several IPUs."),
    "diff": ("diff", "Name the first operation at which two runs part."),
    "data": ("data", "Say which data sets are there, or download them."),
    "tf": ("programs.tf", "Run a TensorFlow program on the simulated machine."),
    "poprun": ("programs.poprun", "Run a program in several processes that share replicas."),
    "doctor": ("doctor", "Say whether this installation computes the bits of its version."),
    "warmup": ("warmup", "Compile the kernels that most programs need."),
    "bench": ("bench", "Time the arithmetic, beside np.copyto and other tools."),
}


class LazyCommands(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ipu.experiments.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"command={args[0]!r} is not known.{hint} See: fpsim --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, message="fpsim %(version)s")
def commands() -> None:
    """A numerical precision laboratory: what a low-precision machine really does to numbers."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    if sentence := conflict():
        print(f"fpsim: {sentence}", file=sys.stderr)
        return 2
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    return run(commands, arguments or ["--help"], "fpsim")


def run(command: click.Command, arguments: Sequence[str], name: str) -> int:
    """Run a command of that name; errors are one line, and the exit status tells them apart."""
    try:
        status = command.main(list(arguments), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        print(f"{name}: {error.format_message()}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, click.Abort) as error:
        # click takes any EOFError for a prompt that was left; nothing here asks, so it is a fault.
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        place = f"; {error.__cause__}" if str(error.__cause__ or "") else ""
        print(f"{name}: interrupted{place}", file=sys.stderr)
        return 130
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            return _left()
        from fpsim.state.files import refusal

        if not refusal(error):
            raise
        print(f"{name}: {refusal(error)}", file=sys.stderr)
        return 2
    except SystemExit:
        return _left()
    return int(status or 0)


def _left() -> int:
    """The status where click exits after a completion, or the reader (head, less) has left.

    There is nothing more to say then, also not at the end of the process.
    """
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        return 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
