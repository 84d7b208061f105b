"""Every code block of the package's README runs, in order."""

import re

from conftest import ROOT

import tenon


def test_code_blocks_run():
    text = (ROOT / "client" / "python" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 8
    scope = {}
    try:
        for block in blocks:
            exec(compile(block, "README.md", "exec"), scope)
        assert abs(scope["value"]) > 0
    finally:
        tenon.default_client().close()
        tenon.set_default_client(None)
