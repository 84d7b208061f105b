// Measures written as text, as on a command line.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_SPEC_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_SPEC_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "tenon/v1/measure_spec.pb.h"

namespace tenon::client {

// "stress", "tnc:k=20", "snc:k=10,seed=3,rng=numpy", "c_evm:clustering=dbscan,dbscan.eps=0.3".
//
// Before the colon stands the id or alias of a measure, after it parameters by the names of the
// fields of its message in proto/tenon/v1/measure_spec.proto, with dots into inner messages. Values
// of enumerations are written short and in lower case ("silhouette"), booleans as true and false.
// "seed" and "rng" stand for random.seed and random.generator; "minkowski.p" (for
// minkowski_p), "k-means++" and "<m>-means" are understood as the reference writes them.
//
// UNKNOWN_MEASURE for an id that this version does not know, unless it has no parameters: then it
// goes to the server as it is. BAD_PARAMETER, with the name as field, for the rest. Ranges are
// checked by the server.
absl::StatusOr<v1::MeasureSpec> ParseMeasureSpec(std::string_view text);

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_MEASURE_SPEC_H_
