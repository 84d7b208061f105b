import os
import threading

import grpc
import numpy as np
from google.rpc import status_details_pb2
from tenon.v1 import measure_spec_pb2, measurement_pb2, measurement_pb2_grpc, tensor_pb2

angles = np.linspace(0, 12, 200)
helix = np.stack([np.cos(angles), np.sin(angles), angles], axis=1)
room = threading.Semaphore(3)  # gRPC's iterator runs ahead of the answers as far as it is let


def spec_of(x):
    return tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT64, shape=x.shape)


def frames():
    tnc = measure_spec_pb2.MeasureSpec(id="tnc")
    tnc.trustworthiness_continuity.k = 10
    yield measurement_pb2.MeasureRequest(header=measurement_pb2.MeasureHeader(
        specs=[tnc],
        dataset_input=measurement_pb2.DatasetInput(spec=spec_of(helix), inline_data=helix.tobytes()),
        client_stream=measurement_pb2.ClientStreamSource()))
    for index, axes in enumerate([(0, 1), (0, 2), (1, 2)]):
        room.acquire()
        points = np.ascontiguousarray(helix[:, axes])
        yield measurement_pb2.MeasureRequest(projection=measurement_pb2.Projection(
            index=index, name=f"axes {axes}", spec=spec_of(points), inline_data=points.tobytes()))


channel = grpc.insecure_channel(os.environ.get("TENON_SERVER", "127.0.0.1:50551"))
try:
    for answer in measurement_pb2_grpc.MeasurementServiceStub(channel).Measure(frames()):
        if answer.HasField("item_error"):  # of this projection only: the stream goes on
            print(answer.item_error.name, answer.item_error.error.reason)
        elif answer.HasField("scores"):
            print(answer.scores.name, dict(answer.scores.specs[0].values))
        if answer.HasField("item_error") or answer.HasField("scores"):
            room.release()
except grpc.RpcError as error:  # nearly every failed call says a stable reason, and its figures
    status = status_details_pb2.Status()
    status.ParseFromString(dict(error.trailing_metadata()).get("grpc-status-details-bin", b""))
    info = status_details_pb2.ErrorInfo()
    known = any(detail.Unpack(info) for detail in status.details)
    raise SystemExit(f"{error.code().name} {info.reason if known else ''}: {error.details()} "
                     f"{dict(info.metadata)}")
