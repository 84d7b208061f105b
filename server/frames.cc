#include "server/frames.h"

#include <grpc/grpc.h>

#include <string>

#include "backends/core/error.h"

namespace tenon::server {

absl::Status MalformedFrame(int64_t number, int64_t bytes) {
  return Error(Reason::kMalformedFrame, StrCat("frame ", number, " of the stream, of ", bytes,
                                               " bytes, is not a message of the method's type"))
      .Meta("frame_number", number)
      .Meta("actual_bytes", bytes);
}

absl::Status UnserializableFrame() {
  return Error(Reason::kInternal, "a frame of the answer can't be serialised");
}

void CancelCall(grpc::CallbackServerContext* context, const absl::Status& status) {
  const std::string text =
      StrCat(ReasonName(GetErrorDetails(status).reason), ": ", status.message());
  grpc_call_cancel_with_status(context->c_call(), static_cast<grpc_status_code>(status.code()),
                               text.c_str(), nullptr);
}

}  // namespace tenon::server
