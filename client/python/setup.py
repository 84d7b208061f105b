"""Generates the stubs of the wire contract into the package while it is built."""

import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


class BuildWithStubs(build_py):
    """The status details are read without generated code: their names belong to googleapis."""

    def run(self):
        super().run()
        import grpc_tools
        from grpc_tools import protoc

        out = pathlib.Path(self.build_lib)
        well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        files = sorted(str(path) for path in (PROTO / "tenon" / "v1").glob("*.proto"))
        code = protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}",
                            f"--grpc_python_out={out}", f"--pyi_out={out}", *files])
        if code != 0:
            raise RuntimeError("the stubs can't be generated")


setup(cmdclass={"build_py": BuildWithStubs})
