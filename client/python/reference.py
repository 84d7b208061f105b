#!/usr/bin/env python3
"""Writes the reference of the package as HTML, from its docstrings.

reference.py FOLDER   writes FOLDER/index.html and a page per module

Needs the package as it is installed (its stubs are made by the installation) and pdoc
(``pip install pdoc``). The messages and calls of ``tenon.v1`` are in the reference of the wire
contract, proto/README.md.
"""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
import sys
import warnings


def modules() -> list[str]:
    """Every public module of the package, without the stubs."""
    package = importlib.import_module("tenon")
    found = [module.name for module in pkgutil.walk_packages(package.__path__, "tenon.")]
    return ["tenon"] + sorted(name for name in found if is_public(name))


def is_public(name: str) -> bool:
    """Whether a module, by its full name, is meant for users."""
    parts = name.split(".")
    return not any(part.startswith("_") for part in parts) and parts[:2] != ["tenon", "v1"]


def load_all(name: str) -> None:
    """Puts into a module what it loads on demand: pdoc looks only at what is there."""
    module = importlib.import_module(name)
    for part in getattr(module, "__all__", ()):
        vars(module).setdefault(part, getattr(module, part))


def write(folder: pathlib.Path) -> None:
    """All pages, with a search over them. ImportError without pdoc."""
    try:
        import pdoc
        import pdoc.render
    except ImportError:
        raise ImportError("the reference needs pdoc: pip install pdoc") from None
    pdoc.render.configure(docformat="google", show_source=False,
                          footer_text="Tenon, from the docstrings, by client/python/reference.py")
    for name in modules():
        load_all(name)
    with warnings.catch_warnings():
        # Those that a package has in its __all__ come with the package already.
        warnings.filterwarnings("ignore", "The module specification")
        pdoc.pdoc(*modules(), output_directory=folder)


def main(arguments: list[str]) -> int:
    """The exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)
    print(folder / "index.html")
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: the source of the package, without its stubs
    sys.exit(main(sys.argv[1:]))
