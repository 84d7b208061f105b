#!/usr/bin/env python3
"""Writes proto/README.md, the reference of the wire contract, from the comments of tenon/v1/*.proto.

reference.py          writes it
reference.py --check  fails when it is not what the comments say
"""

import pathlib
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

FOLDER = pathlib.Path(__file__).resolve().parent
TARGET = FOLDER / "README.md"
HEAD = """# The wire contract `tenon.v1`

Everything that a client and a server say to each other; made by `proto/reference.py` from the
comments of `proto/tenon/v1/*.proto`, which are the contract. Fields are never renumbered.
"""

Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {number: name[len("TYPE_"):].lower() for name, number in Field.Type.items()}


def parse():
    """The files of the contract, with their comments."""
    names = sorted(f"tenon/v1/{path.name}" for path in (FOLDER / "tenon" / "v1").glob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", f"-I{FOLDER}", "--include_source_info",
                        f"--descriptor_set_out={out.name}", *names], check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(out.read()).file


def markdown(comment):
    """A comment's text; what is indented in it, such as tables of states, stays as it is."""
    lines, block = [], []
    for line in (*comment.rstrip().split("\n"), None):
        line = line.removeprefix(" ") if line is not None else None
        if line is not None and (line.startswith("  ") or (block and not line)):
            block.append(line)
            continue
        if block:
            text = "\n".join(block).rstrip()
            lines += ["", "```text", text, "```", ""]
            block = []
        if line is not None:
            # Names in angles and stars are no markup.
            lines.append(line.replace("<", "&lt;").replace("*", "\\*"))
    return "\n".join(lines).strip()


def cell(comment):
    """A comment in one cell of a table."""
    return " ".join(comment.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def anchor(full_name):
    """Where something is told of: `.tenon.v1.Network` at #network."""
    return full_name.removeprefix(".tenon.v1.").replace(".", "").lower()


def type_of(field, entries):
    if field.type_name in entries:
        key, value = entries[field.type_name].field
        return f"map of {type_of(key, entries)} to {type_of(value, entries)}"
    name = field.type_name.removeprefix(".tenon.v1.")
    text = _SCALARS[field.type]
    if name:
        text = f"[{name}](#{anchor(field.type_name)})" if name != field.type_name else name[1:]
    if field.label == Field.LABEL_REPEATED:
        return "repeated " + text
    return "optional " + text if field.proto3_optional else text


class Reference:
    """Collects the text of one file after the other."""

    def __init__(self):
        self.parts = [HEAD]

    def add_file(self, file):
        self._comments = {tuple(place.path): place.leading_comments or place.trailing_comments
                          for place in file.source_code_info.location}
        title = file.name.rpartition("/")[2]
        self.parts.append(f"## {title}\n\n{markdown(self._comments.get((12,), ''))}".rstrip())
        for at, service in enumerate(file.service):
            self._service(service, (6, at))
        for at, message in enumerate(file.message_type):
            self._message(message, (4, at), "")
        for at, enum in enumerate(file.enum_type):
            self._enum(enum, (5, at), "")

    def _comment(self, path):
        return self._comments.get(path, "")

    def _service(self, service, path):
        self.parts.append(f"### {service.name}\n\n{markdown(self._comment(path))}")
        for at, method in enumerate(service.method):
            sides = [("stream of " if streams else "") + f"[{name.removeprefix('.tenon.v1.')}]"
                     f"(#{anchor(name)})"
                     for streams, name in ((method.client_streaming, method.input_type),
                                           (method.server_streaming, method.output_type))]
            self.parts.append(f"#### {service.name}.{method.name}\n\n{sides[0]} → {sides[1]}\n\n"
                              f"{markdown(self._comment(path + (2, at)))}")

    def _message(self, message, path, prefix):
        name = prefix + message.name
        entries = {f".tenon.v1.{name}.{nested.name}": nested for nested in message.nested_type
                   if nested.options.map_entry}
        rows = ["| field | type | |", "| --- | --- | --- |"]
        for at, field in enumerate(message.field):
            kind = type_of(field, entries)
            if field.HasField("oneof_index") and not field.proto3_optional:
                kind += f", one of *{message.oneof_decl[field.oneof_index].name}*"
            rows.append(f"| {field.name} = {field.number} | {kind} "
                        f"| {cell(self._comment(path + (2, at)))} |")
        text = f"### {name}\n\n{markdown(self._comment(path))}".rstrip()
        self.parts.append(text + ("\n\n" + "\n".join(rows) if message.field else ""))
        for at, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                self._message(nested, path + (3, at), name + ".")
        for at, enum in enumerate(message.enum_type):
            self._enum(enum, path + (4, at), name + ".")

    def _enum(self, enum, path, prefix):
        rows = ["| value | |", "| --- | --- |"]
        rows += [f"| {value.name} = {value.number} | {cell(self._comment(path + (2, at)))} |"
                 for at, value in enumerate(enum.value)]
        self.parts.append(f"### {prefix}{enum.name}\n\n{markdown(self._comment(path))}\n\n"
                          + "\n".join(rows))

    def text(self):
        return "\n\n".join(part.rstrip() for part in self.parts) + "\n"


def main():
    reference = Reference()
    for file in parse():
        reference.add_file(file)
    text = reference.text()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("proto/README.md is not what the comments say; run proto/reference.py")
    else:
        TARGET.write_text(text)


if __name__ == "__main__":
    main()
