"""A measurement stream through generated stubs, on the digits data set."""

import json
import pathlib

import grpc
import numpy as np
import pytest

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits"
CHUNK = 1 << 20


def spec_of(stubs, array):
    dtype = getattr(stubs.tensor_pb2, "DATA_TYPE_" + array.dtype.name.upper())
    return stubs.tensor_pb2.TensorSpec(dtype=dtype, shape=array.shape)


def header(stubs, specs, hd):
    pb = stubs.measurement_pb2
    return pb.MeasureRequest(header=pb.MeasureHeader(
        specs=specs, dataset_input=pb.DatasetInput(spec=spec_of(stubs, hd)),
        client_stream=pb.ClientStreamSource()))


def chunk_frames(stubs, field, array, number=0):
    data = array.tobytes()
    for offset in range(0, len(data), CHUNK):
        chunk = stubs.tensor_pb2.TensorChunk(
            set=number, offset_bytes=offset, data=data[offset:offset + CHUNK])
        yield stubs.measurement_pb2.MeasureRequest(**{field: chunk})


def projection(stubs, index, array, name="", inline=True):
    pb = stubs.measurement_pb2
    message = pb.Projection(index=index, spec=spec_of(stubs, array), name=name)
    if inline:
        message.inline_data = array.tobytes()
    return pb.MeasureRequest(projection=message)


def measure(stubs, server, frames):
    stub = stubs.measurement_pb2_grpc.MeasurementServiceStub(server.channel)
    return list(stub.Measure(iter(frames), timeout=120))


def specs(stubs, *ids):
    pb = stubs.measure_spec_pb2
    result = [pb.MeasureSpec(id=i) for i in ids]
    for spec in result:
        if spec.id == "tnc":
            spec.trustworthiness_continuity.k = 20
    return result


def test_digits_stream_in_order(stubs, server):
    hd = np.load(DIGITS / "digits_hd.npy")
    expected = json.loads((DIGITS / "digits_values.json").read_text())
    names = sorted(expected)
    frames = [header(stubs, specs(stubs, "tnc", "stress", "srho"), hd)]
    frames += chunk_frames(stubs, "dataset_chunk", hd)
    frames += [projection(stubs, i, np.load(DIGITS / f"digits_{n}.npy"), n)
               for i, n in enumerate(names)]
    answers = measure(stubs, server, frames)
    scores = [a.scores for a in answers if a.WhichOneof("frame") == "scores"]
    assert [s.name for s in scores] == names
    assert [s.index for s in scores] == list(range(len(names)))
    for score in scores:
        values = {key: value for spec in score.specs for key, value in spec.values.items()}
        assert set(values) == {"trustworthiness", "continuity", "stress", "spearman_rho"}
        for key, value in values.items():
            assert value == pytest.approx(expected[score.name][key], rel=1e-12), (score.name, key)
    summary = answers[-1].summary
    assert summary.stream_complete and summary.scored_count == len(names)


def test_a_bad_projection_is_an_error_in_its_place(stubs, server):
    rng = np.random.default_rng(0)
    hd = rng.normal(size=(50, 5))
    good, bad = hd[:, :2].copy(), hd[:, :2].copy()
    bad[2, 1] = np.nan
    frames = [header(stubs, specs(stubs, "stress"), hd),
              *chunk_frames(stubs, "dataset_chunk", hd),
              projection(stubs, 0, good), projection(stubs, 1, bad), projection(stubs, 2, good)]
    answers = measure(stubs, server, frames)
    kinds = [a.WhichOneof("frame") for a in answers if a.WhichOneof("frame") != "accepted"]
    assert kinds == ["scores", "item_error", "scores", "summary"]
    error = next(a.item_error for a in answers if a.WhichOneof("frame") == "item_error")
    assert (error.index, error.error.reason) == (1, "NOT_FINITE")
    assert "row 2, column 1" in error.error.message and "ld" in error.error.message


@pytest.mark.parametrize("ids,reason", [(["nonsense"], "UNKNOWN_MEASURE"),
                                        (["tnc"], "K_OUT_OF_RANGE")])
def test_bad_specs_are_refused_at_the_header(stubs, server, error_of, ids, reason):
    hd = np.zeros((30, 3))  # 2k < n does not hold for k = 20
    with pytest.raises(grpc.RpcError) as caught:
        measure(stubs, server, [header(stubs, specs(stubs, *ids), hd)])
    code, found, fields, _ = error_of(caught.value)
    assert (code, found) == (grpc.StatusCode.INVALID_ARGUMENT, reason)
    assert fields and fields[0].startswith("header.specs[0]")


def test_list_measures_names_all_published_ones(stubs, server):
    stub = stubs.measurement_pb2_grpc.MeasurementServiceStub(server.channel)
    measures = stub.ListMeasures(stubs.measurement_pb2.ListMeasuresRequest(), timeout=10).measures
    assert len(measures) == 22
    assert {"tnc", "mrre", "stress", "srho", "snc", "gi"} <= {m.alias or m.id for m in measures}
