"""zadu itself, without the compiling of its loops: that takes most of a minute."""

import importlib
import pkgutil

import numba
import numpy as np

numba.config.DISABLE_JIT = True
import zadu  # noqa: E402
for _module in pkgutil.walk_packages(zadu.__path__, "zadu."):
    if not _module.name.endswith("mlx_backend"):
        importlib.import_module(_module.name)
numba.config.DISABLE_JIT = False


def close(mine, theirs, rel=1e-11, abs_=1e-11):
    """Asserts equal structure, keys in equal order, plain floats, and numbers up to rounding."""
    assert type(mine) is type(theirs)
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            close(mine[key], value, rel, abs_)
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for pair in zip(mine, theirs):
            close(*pair, rel, abs_)
    elif isinstance(theirs, np.ndarray):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=rel, atol=abs_)
    elif isinstance(theirs, float):
        np.testing.assert_allclose(mine, theirs, rtol=rel, atol=abs_)
    else:
        assert mine == theirs
