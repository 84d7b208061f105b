"""Everything public has a docstring that names its parameters; the reference shows all of it.

What functions of a module, or of the modules of a package, have in common may stand in the
docstring of the module or the package; "See `tenon.X.y`" stands for that one's docstring.
"""

import dataclasses
import enum
import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import tenon

SCRIPT = ROOT / "client" / "python" / "reference.py"
EXCEPTIONS: set[str] = set()  # what may say less; none so far


def load_script():
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES = load_script().modules()


def public_names(module):
    own = [name for name, value in vars(module).items() if not name.startswith("_")
           and getattr(value, "__module__", None) == module.__name__]
    return getattr(module, "__all__", own)


def ours(function):
    return getattr(function, "__module__", "").startswith("tenon")


def parameters(function):
    return [name for name in inspect.signature(function).parameters
            if name not in ("self", "cls", "_")]


def referred(text):
    """The docstrings of what a docstring says to see."""
    found = []
    for path in re.findall(r"See `tenon\.([\w.]+)`", text):
        part = tenon
        for name in path.split("."):
            part = getattr(part, name)
            found.append(part.__doc__)
    return " ".join(found)


def unnamed(where, names, *texts):
    text = " ".join(text or "" for text in texts)
    text += referred(text)
    return [f"{where}: {name}" for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]


def lacks_of_class(where, kind):
    init = kind.__init__
    text = kind.__dict__.get("__doc__")
    lacks = [] if text else [f"{where}: docstring"]
    if dataclasses.is_dataclass(kind) or (inspect.isfunction(init) and ours(init)
                                          and not issubclass(kind, enum.Enum)):
        inherited = [base.__doc__ for base in kind.__mro__ if ours(base)]
        lacks += unnamed(where, parameters(init), text, *inherited, init.__doc__)
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        if isinstance(function, property) or inspect.isfunction(function):
            doc = inspect.getdoc(getattr(kind, name) if not isinstance(function, property)
                                 else function)
            if not doc:
                lacks.append(f"{where}.{name}: docstring")
            elif inspect.isfunction(function):
                lacks += unnamed(f"{where}.{name}", parameters(function), doc, text)
    return lacks


def lacks_of_module(name):
    module = importlib.import_module(name)
    lacks = [] if module.__doc__ else [f"{name}: docstring"]
    common = (module.__doc__ or "", sys.modules[name.rpartition(".")[0] or name].__doc__)
    for part in public_names(module):
        value, where = getattr(module, part), f"{name}.{part}"
        if inspect.isclass(value) and ours(value):
            lacks += lacks_of_class(where, value)
        elif inspect.isfunction(value):
            lacks += ([] if value.__doc__ else [f"{where}: docstring"]) + unnamed(
                where, parameters(value), value.__doc__, *common)
    return [lack for lack in lacks if lack not in EXCEPTIONS]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_name_their_parameters(name):
    assert lacks_of_module(name) == []


def test_the_search_for_lacks_finds_them(monkeypatch):
    class Bare:
        def __init__(self, first):
            """Takes first."""

        def method(self, second):
            """Something."""

        @property
        def value(self):
            return 1

    Bare.__init__.__module__ = Bare.__module__ = "tenon.bare"
    assert lacks_of_class("Bare", Bare) == ["Bare: docstring", "Bare.method: second",
                                            "Bare.value: docstring"]


def test_public_modules_alone_are_in_it():
    script = load_script()
    assert {"tenon", "tenon.client", "tenon.errors", "tenon.pictures"} <= set(MODULES)
    assert not any(script.is_public(name) for name in (
        "tenon._arrays", "tenon.v1", "tenon.v1.plan_pb2", "tenon.pictures._maps"))


def test_a_page_per_module_is_written(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = tmp_path / "new" / "reference"
    done = subprocess.run([sys.executable, SCRIPT, out], env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "index.html") and "Warning" not in done.stderr
    pages = {str(path.relative_to(out).with_suffix("")).replace(os.sep, ".")
             for path in out.rglob("*.html")} - {"index"}
    assert pages == set(MODULES)
    text = (out / "tenon.html").read_text()
    assert all(f'id="{name}"' in text for name in ("contract", "Client", "Optimizer", "Scores"))
    text = (out / "tenon" / "pictures.html").read_text()
    for name in ("checkviz", "reliability_map", "score_table", "contraction_tree", "timeline"):
        assert f'id="{name}"' in text
    assert "Lespinats" in text and "<strong>limit:" in text  # the list of parameters was read


@pytest.mark.parametrize("arguments,status", [([], 2), (["a", "b"], 2), (["--what"], 2),
                                              (["--help"], 0)])
def test_other_arguments_tell_the_usage(arguments, status):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert done.returncode == status and "reference.py FOLDER" in done.stderr


def test_without_pdoc_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pdoc", None)
    with pytest.raises(ImportError, match="pip install pdoc"):
        load_script().write(tmp_path)
