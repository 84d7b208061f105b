"""Every code block of the package's README runs, in order."""

import re

from conftest import ROOT

import tenon


def test_code_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "client" / "python" / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 8
    scope = {}
    try:
        for block in blocks:
            exec(compile(block, "README.md", "exec"), scope)
        assert abs(scope["value"]) > 0
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))
        assert len(list(tmp_path.glob("*.png"))) == 4
    finally:
        tenon.default_client().close()
        tenon.set_default_client(None)
