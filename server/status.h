// Engine errors as gRPC statuses.

#ifndef TENON_SERVER_STATUS_H_
#define TENON_SERVER_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "tenon/v1/errors.pb.h"

namespace tenon::server {

// The status with google.rpc details: ErrorInfo always (domain "tenon"), BadRequest when fields are
// named (at most 20), RetryInfo when the error has metadata "retry_delay_seconds".
grpc::Status ToGrpcStatus(const absl::Status& status);

// The same error as a message, for errors that end an item and not the stream.
v1::ErrorDetail ToErrorDetail(const absl::Status& status);

}  // namespace tenon::server

#endif  // TENON_SERVER_STATUS_H_
