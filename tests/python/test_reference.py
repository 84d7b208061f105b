"""The reference of the wire contract says what the comments of the contract say, about everything."""

import importlib.util
import subprocess
import sys

from tenond import ROOT

SCRIPT = ROOT / "proto" / "reference.py"


def test_is_up_to_date():
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True)


def test_everything_is_told_of():
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    text = reference.TARGET.read_text()
    files = reference.parse()
    for file in files:
        for message in file.message_type:
            assert f"\n### {message.name}\n\n" in text
            for field in message.field:
                assert f"\n| {field.name} = {field.number} | " in text
        for service in file.service:
            for method in service.method:
                assert f"\n#### {service.name}.{method.name}\n" in text
    # A row without a text is a field without a comment.
    assert "|  |\n" not in text
    assert len(files) == len(list((ROOT / "proto" / "tenon" / "v1").glob("*.proto")))


def test_markup():
    spec = importlib.util.spec_from_file_location("reference", SCRIPT)
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert reference.markdown(" a*b <c>\n\n   table\n\n   more\n rest\n") == (
        "a\\*b &lt;c>\n\n\n```text\n  table\n\n  more\n```\n\nrest")
    assert reference.cell(" one\n two | three\n") == "one two \\| three"
