import os

import grpc
import numpy as np
from tenon.v1 import contraction_pb2, contraction_pb2_grpc, plan_pb2, tensor_pb2

# The trace of a product of 32 matrices that also share indices across the ring.
rng = np.random.default_rng(0)
tensors = [rng.normal(size=(2, 2, 2)) for _ in range(32)]
indices = [(f"bond{t}", f"bond{(t + 1) % 32}", f"chord{t % 16}") for t in range(32)]


def network(with_data):
    return plan_pb2.Network(operands=[
        plan_pb2.Operand(
            indices=names,
            spec=tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT64, shape=x.shape),
            inline_data=x.tobytes() if with_data else None)
        for names, x in zip(indices, tensors)
    ])


channel = grpc.insecure_channel(os.environ.get("TENON_SERVER", "127.0.0.1:50551"))
stub = contraction_pb2_grpc.ContractionServiceStub(channel)
question = contraction_pb2.PlanContractionRequest(
    network=network(with_data=False),
    search=plan_pb2.SearchOptions(max_trials=16, seed=1, target_size=2**6))
for frame in stub.PlanContraction(question):
    if frame.HasField("improvement"):  # while it searches
        better = frame.improvement
        print(f"after {better.trials} trials: 10^{better.total.log10_flops:.2f} multiply-adds")
    if frame.HasField("plan"):  # the last frame
        plan = frame.plan.plan
print(f"{plan.slices} slices of at most 2^{plan.per_slice.log2_largest_intermediate:.0f} elements")

header = contraction_pb2.ContractHeader(network=network(with_data=True), plan_id=plan.plan_id)
answer = next(stub.Contract(iter([contraction_pb2.ContractRequest(header=header)])))
print("value:", np.frombuffer(answer.single.results[0].inline_data)[0])
