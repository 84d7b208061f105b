import os

import grpc
import numpy as np
from tenon.v1 import contraction_pb2, contraction_pb2_grpc, plan_pb2, tensor_pb2

a, b = np.full((2, 3), 1.5), np.full((3, 2), 2.0)
operands = [
    plan_pb2.Operand(
        spec=tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT64, shape=x.shape),
        inline_data=x.tobytes())
    for x in (a, b)
]
header = contraction_pb2.ContractHeader(
    einsum=plan_pb2.Einsum(subscripts="ab,bc->ac", operands=operands))

channel = grpc.insecure_channel(os.environ.get("TENON_SERVER", "127.0.0.1:50551"))
stub = contraction_pb2_grpc.ContractionServiceStub(channel)
answer = next(stub.Contract(iter([contraction_pb2.ContractRequest(header=header)])))
result = answer.single.results[0]
print(np.frombuffer(result.inline_data).reshape(result.spec.shape))  # 9 everywhere
