"""Stands in for grpcurl, which Debian 12 lacks: as much of it as client/README.md uses.

Like grpcurl it takes the types from the server's reflection, or from -protoset, refuses JSON that
is not a message of the method's request type, prints answers as JSON and leaves with 64 + the code
of a failed call. Needs reflection_pb2 (reflection.proto) on PYTHONPATH.
"""

import argparse
import json
import pathlib
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

import reflection_pb2

EXIT_CODE_OFFSET = 64


def arguments(words):
    """The command line; grpcurl spells its flags with one dash."""
    parser = argparse.ArgumentParser(prog="grpcurl", allow_abbrev=False)
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-d", default="", dest="data")
    parser.add_argument("-H", action="append", default=[], dest="headers")
    parser.add_argument("-max-time", type=float, default=60, dest="max_time")
    parser.add_argument("-protoset", type=pathlib.Path)
    parser.add_argument("address")
    parser.add_argument("words", nargs="+")
    return parser.parse_args(words)


class Reflection:
    """The types of a server, as it tells them itself."""

    def __init__(self, channel):
        self._ask = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)

    def services(self):
        answer = self._answer(list_services="")
        return [service.name for service in answer.list_services_response.service]

    def files(self, symbol):
        answer = self._answer(file_containing_symbol=symbol)
        if answer.HasField("error_response"):
            sys.exit(f"{symbol}: {answer.error_response.error_message}")
        return [descriptor_pb2.FileDescriptorProto.FromString(data)
                for data in answer.file_descriptor_response.file_descriptor_proto]

    def _answer(self, **question):
        request = reflection_pb2.ServerReflectionRequest(**question)
        return next(self._ask(iter([request]), timeout=60))


def service_named(name, files):
    """The descriptor of a service, from files that may come in any order."""
    pool = descriptor_pool.DescriptorPool()
    missing = {file.name: file for file in files}

    def add(name):
        file = missing.pop(name, None)
        if file is not None:
            for dependency in file.dependency:
                add(dependency)
            pool.Add(file)

    for file in files:
        add(file.name)
    return pool.FindServiceByName(name)


def message_class(descriptor):
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(descriptor.file.pool).GetPrototype(descriptor)


def requests_of(text, request_class):
    """JSON objects, one after the other; without any, one empty message."""
    decoder, requests = json.JSONDecoder(), []
    text = text.strip() or "{}"
    while text:
        value, end = decoder.raw_decode(text)
        requests.append(json_format.ParseDict(value, request_class()))
        text = text[end:].lstrip()
    return requests


def call(channel, method, requests, options):
    """Prints the answers of any kind of method."""
    metadata = [tuple(part.strip() for part in header.split(":", 1)) for header in options.headers]
    stream = channel.stream_stream(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=message_class(method.output_type).FromString)
    try:
        for answer in stream(iter(requests), timeout=options.max_time, metadata=[
                (key.lower(), value) for key, value in metadata]):
            print(json_format.MessageToJson(answer))
    except grpc.RpcError as error:
        print(f"ERROR:\n  Code: {error.code().name}\n  Message: {error.details()}", file=sys.stderr)
        sys.exit(EXIT_CODE_OFFSET + error.code().value[0])


def main():
    options = arguments(sys.argv[1:])
    with grpc.insecure_channel(options.address) as channel:
        reflection = Reflection(channel)
        verb, *rest = options.words
        if verb == "list" and not rest:
            print("\n".join(reflection.services()))
            return
        if verb == "describe":
            service, name = rest[0].rsplit(".", 1)
        else:
            service, name = verb.split("/")
        if options.protoset:
            files = descriptor_pb2.FileDescriptorSet.FromString(options.protoset.read_bytes()).file
        else:
            files = reflection.files(service)
        method = service_named(service, files).methods_by_name[name]
        if verb == "describe":
            print(f"rpc {method.name} ( .{method.input_type.full_name} ) returns "
                  f"( .{method.output_type.full_name} );")
            return
        data = sys.stdin.read() if options.data == "@" else options.data
        call(channel, method, requests_of(data, message_class(method.input_type)), options)


if __name__ == "__main__":
    main()
