"""The program: python -m tests.single_users. Modules that one module alone imports.

A module has two users or a name in the docs. What is listed under REASONS is one idea of its own
all the same: a program, an engine that a table names, or a class that would make its user two
subjects. The rest is what may be joined with its user.
"""

from __future__ import annotations

import sys

from tests.test_architecture import ROOT, arrows, modules

__all__ = ["REASONS", "main", "single_users"]

#: Why modules of these rooms, or these modules, stand alone; the longest beginning counts.
REASONS = {
    "fpsim.kernels": "compiled code: a kernel is compiled anew with every change of its file",
    "fpsim.elementwise": "operations with a rule of their own, below the Context",
    "fpsim.products": "one way of summing or multiplying each",
    "fpsim.products.by_operation": "engines, which the table of engines names",
    "fpsim.products.by_unit": "engines, which the table of engines names",
    "fpsim.judge": "each judge is a second opinion of its own",
    "fpsim.array_functions": "numpy's protocols, apart from the class that has them",
    "fpsim.like": "the one of numpy's protocols that makes arrays",
    "fpsim.einsum": "an operation of its own: how a text becomes one product",
    "fpsim.block_layouts": "the memory layouts of codes and scales, a table with its sources",
    "fpsim.block_products": "one way of multiplying: blocks, beside Arrays",
    "fpsim.iterate": "the kernel of many steps, apart from the operations of one",
    "fpsim.trace": "what a step consists of, before anything runs",
    "ipu.ops": "families of the table",
    "ipu.members": "transports, their servers and what beats beside them",
    "ipu.frontends.popdist.guard": "a program",
    "ipu.frontends.popdist.instance": "a program",
    "ipu.frontends.tensorflow": "modules by the vendor's names, and tables of kernels by subject",
    "ipu.frontends.torch.aten": "tables of aten operations by subject",
    "ipu.frontends.popdist.arriving": "the watch over a launch, apart from membership",
    "ipu.frontends.poptorch.engine": "what a call of a model needs, one subject a file",
    "ipu.frontends.processes.vendor_names": "names alone, which run nothing",
    "ipu.frontends.torch": "what a session changes in torch, one subject of torch a file",
    "ipu.learn.checkpoint.record": "fields and their checks; the file knows only bytes",
    "ipu.machine.blocks": "the state of products in blocks, apart from the verbs",
    "ipu.machine.generator": "the machine's random words, apart from its verbs",
    "ipu.machine.replica_device": "verbs of several replicas at once, apart from those of one",
    "ipu.machine.sums": "the order of the machine's sums, apart from its verbs",
    "ipu.plan.replica_batches": "replicas that run together, apart from the order of a step",
    "ipu.plan.trees": "sums in one call, apart from those whose additions run alone",
    "ipu.run.births": "what is read of a result, one subject a file",
    "ipu.run.block_advice": "rules of one subject: what operands in blocks speak for",
    "ipu.run.causes": "rules of one subject each, which the finding of causes puts in order",
    "ipu.run.diagnosing": "the order of a diagnosis, apart from what it finds",
    "ipu.run.horizons": "how many steps are followed, apart from what is found in them",
    "ipu.run.jointly": "an optimiser's arithmetic in another shape, which knows of no shadow",
    "ipu.run.loss_scales": "advice that a report prints, from exponents alone",
    "ipu.run.operands": "what quantising did to operands, with its figures; a recorder keeps them",
    "ipu.run.patches": "changes of a program's text, which know of no run",
    "ipu.run.printed": "numbers in a text as an endpoint, which know of no diagnosis",
    "ipu.run.remedies": "the trials of a diagnosis, apart from its search for sites",
    "ipu.run.searching": "the search for sites, apart from the trials of remedies",
    "ipu.run.updates": "what a recorder counts of updates, apart from exponents",
    "ipu.run.pages": "one file a page",
    "ipu.experiments": "one file a question, a topic or a command",
}


def single_users() -> dict[str, str]:
    """The only importer of each module that has one and no name in the docs."""
    users: dict[str, set[str]] = {}
    for module, others in arrows().items():
        for other in others:
            users.setdefault(other, set()).add(module)
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    docs = " ".join(page.read_text(encoding="utf-8") for page in pages)
    single = {}
    for module, path in sorted(modules().items()):
        named = module in docs or path.relative_to(ROOT).as_posix() in docs
        if path.name == "__init__.py" or named or len(users.get(module, ())) != 1:
            continue
        (user,) = users[module]
        # What a package exports serves all that import the package.
        if not module.startswith(f"{user}."):
            single[module] = user
    return single


def reason(module: str) -> str:
    """Why a module stands alone; empty where nothing is noted.

    >>> reason("ipu.members.mpi_beats"), reason("ipu.learn.nn")
    ('transports, their servers and what beats beside them', '')
    """
    begins = [start for start in REASONS if module == start or module.startswith(f"{start}.")]
    return REASONS[max(begins, key=len)] if begins else ""


def main() -> int:
    """Print modules without a reason, with their users; how many have one."""
    rows = single_users()
    open_rows = {module: user for module, user in rows.items() if not reason(module)}
    for module, user in open_rows.items():
        print(f"{module} <- {user}")
    print(f"{len(rows)} modules have one user; {len(rows) - len(open_rows)} for a reason")
    return 0


if __name__ == "__main__":
    sys.exit(main())
