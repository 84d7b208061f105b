"""Contraction through generated stubs, checked against numpy.einsum."""

import numpy as np
import grpc
import pytest

CHUNK = 1 << 20


def operand(stubs, indices, array, inline=True):
    pb = stubs.plan_pb2
    dtype = getattr(stubs.tensor_pb2, "DATA_TYPE_" + array.dtype.name.upper())
    message = pb.Operand(indices=indices,
                         spec=stubs.tensor_pb2.TensorSpec(dtype=dtype, shape=array.shape))
    if inline:
        message.inline_data = array.tobytes()
    return message


def header(stubs, inputs, output, arrays, inline=True, **fields):
    network = stubs.plan_pb2.Network(
        operands=[operand(stubs, i, a, inline) for i, a in zip(inputs, arrays)], output=output)
    return stubs.contraction_pb2.ContractRequest(
        header=stubs.contraction_pb2.ContractHeader(network=network, **fields))


def chunks(stubs, number, array):
    data = array.tobytes()
    for offset in range(0, len(data), CHUNK):
        yield stubs.contraction_pb2.ContractRequest(chunk=stubs.tensor_pb2.TensorChunk(
            operand=number, offset_bytes=offset, data=data[offset:offset + CHUNK]))


def call(stubs, server, frames, timeout=60):
    stub = stubs.contraction_pb2_grpc.ContractionServiceStub(server.channel)
    return list(stub.Contract(iter(frames), timeout=timeout))


def to_array(spec, data, stubs):
    name = stubs.tensor_pb2.DataType.Name(spec.dtype)[len("DATA_TYPE_"):].lower()
    return np.frombuffer(data, dtype=name).reshape(tuple(spec.shape))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_small_call_is_one_frame_each_way(stubs, server, dtype):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, size=(8, 8)).astype(dtype) for _ in range(2))
    if a.dtype.kind == "c":
        a = a + 1j * rng.integers(-8, 8, size=(8, 8)).astype(dtype)
        a = a.astype(dtype)
    frames = call(stubs, server, [header(stubs, [["a", "b"], ["b", "c"]], ["a", "c"], [a, b])])
    assert [f.WhichOneof("frame") for f in frames] == ["single"]
    single = frames[0].single
    result = to_array(single.results[0].spec, single.results[0].inline_data, stubs)
    np.testing.assert_array_equal(result, a @ b)
    assert single.report.slices == 1
    assert single.report.real_flops == (8 if a.dtype.kind == "c" else 2) * 512


def test_large_tensors_travel_in_chunks(stubs, server):
    a = np.arange(700 * 600, dtype="float64").reshape(700, 600) % 17
    b = np.arange(600 * 800, dtype="float64").reshape(600, 800) % 13
    frames = [header(stubs, [["i", "j"], ["j", "k"]], ["k", "i"], [a, b], inline=False)]
    frames += [*chunks(stubs, 0, a), *chunks(stubs, 1, b)]
    answers = call(stubs, server, frames)
    kinds = [f.WhichOneof("frame") for f in answers]
    assert kinds[0] == "accepted" and kinds[-1] == "report" and "chunk" in kinds
    data, spec = b"", None
    for frame in answers:
        if frame.WhichOneof("frame") == "result":
            spec = frame.result.spec
        if frame.WhichOneof("frame") == "chunk":
            assert frame.chunk.offset_bytes == len(data)
            assert len(frame.chunk.data) <= CHUNK
            data += frame.chunk.data
    # Integers below 2^53: every order of summation gives the same exact value.
    np.testing.assert_array_equal(to_array(spec, data, stubs), (a @ b).T)


def test_sliced_and_unsliced_agree_and_the_report_counts_slices(stubs, server):
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-3, 4, size=(4, 4)).astype("float64") for _ in range(3)]
    inputs, output = [["a", "b"], ["b", "c"], ["c", "d"]], ["a", "d"]
    plan = stubs.plan_pb2.ExplicitPlan(
        path=stubs.plan_pb2.ContractionPath(
            format=stubs.plan_pb2.PATH_FORMAT_SSA,
            steps=[stubs.plan_pb2.PathStep(operands=s) for s in ([0, 1], [2, 3])]),
        sliced_indices=["b", "a"])
    frames = call(stubs, server, [header(stubs, inputs, output, arrays, path=plan)])
    single = frames[0].single
    assert single.report.slices == 16
    # In the order in which they are walked: indices of the output first.
    assert list(single.accepted.plan.sliced_indices) == ["a", "b"]
    result = to_array(single.results[0].spec, single.results[0].inline_data, stubs)
    np.testing.assert_array_equal(result, arrays[0] @ arrays[1] @ arrays[2])


@pytest.mark.parametrize("case", ["bytes", "unknown_index", "second_header", "gap"])
def test_bad_input_gets_code_reason_and_field(stubs, server, error_of, case):
    a = np.ones((2, 3))
    first = header(stubs, [["i", "j"]], ["i"], [a])
    if case == "bytes":
        first.header.network.operands[0].inline_data = bytes(23)
        frames, reason, field = [first], "SHAPE_MISMATCH", "header.network.operands[0].inline_data"
    elif case == "unknown_index":
        first.header.network.output.append("z")
        frames, reason, field = [first], "UNKNOWN_INDEX", "header.network.output[1]"
    elif case == "second_header":
        first = header(stubs, [["i", "j"]], ["i"], [a], inline=False)
        frames, reason, field = [first, first], "FRAME_ORDER", None
    else:
        first = header(stubs, [["i", "j"]], ["i"], [a], inline=False)
        chunk = stubs.tensor_pb2.TensorChunk(operand=0, offset_bytes=8, data=bytes(8))
        frames = [first, stubs.contraction_pb2.ContractRequest(chunk=chunk)]
        reason, field = "CHUNK_ORDER", "chunk.offset_bytes"
    with pytest.raises(grpc.RpcError) as caught:
        call(stubs, server, frames)
    code, found, fields, _ = error_of(caught.value)
    assert (code, found) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    if field:
        assert field in fields
    # The server goes on serving.
    good = call(stubs, server, [header(stubs, [["i", "j"]], ["i"], [a])])
    assert good[0].WhichOneof("frame") == "single"
