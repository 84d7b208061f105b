// Data sets and tensors that stay on the server, so that later calls name them instead of sending
// them: MeasureRequest::dataset_handle, Operand::handle.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_STORE_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_STORE_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tenon/tensor_view.h"
#include "tenon/v1/dataset.pb.h"

namespace tenon::client {

// What Client::CreateDataset and Client::CreateTensor take beside the array.
struct StoreOptions {
  // Names the request in logs, the same at every try; empty: one is drawn.
  std::string request_id = "";
  // Text for people, at most 256 bytes.
  std::string display_name = "";
  // How long it is kept after its last use, > 0. Absent: the server's default.
  std::optional<absl::Duration> ttl = std::nullopt;
  // Every chunk carries a checksum.
  bool checksums = false;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_STORE_H_
