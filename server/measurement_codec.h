// Between the messages of a measurement and the engine's types. Nothing here keeps state.

#ifndef TENON_SERVER_MEASUREMENT_CODEC_H_
#define TENON_SERVER_MEASUREMENT_CODEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/core/cancel.h"
#include "backends/core/tensor.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/session.h"
#include "server/state.h"
#include "server/tensor_codec.h"
#include "tenon/v1/measure_spec.pb.h"
#include "tenon/v1/measurement.pb.h"
#include "tenon/v1/tensor.pb.h"

namespace tenon::server {

// ReadTensorSpec for rows of points: [n, columns] with n >= 1, columns >= 1, of any type that is
// not complex (UNSUPPORTED_DTYPE). SHAPE_MISMATCH also for another rank.
absl::StatusOr<TensorSpec> ReadMatrixSpec(const v1::TensorSpec& spec, std::string_view field,
                                          const Limits& limits);

// BAD_PARAMETER when an element of a bool tensor is neither 0 nor 1; also NOT_FINITE, naming row
// and column, when `finite` is asked for; the token's. Reads all elements.
absl::Status CheckValues(const Tensor& matrix, bool finite, std::string_view field,
                         const CancelToken* cancel);

// Specifications with the parameters that are present; defaults are the engine's. Values of
// enumerations become the reference's names ("silhouette"), nested messages "outer.inner".
// Errors, with fields "header.specs[i]...": MISSING_FIELD (no id), UNKNOWN_MEASURE, BAD_PARAMETER
// (parameters of another measure, an unknown enumeration value), EXCEEDS_SERVER_LIMIT (count).
absl::StatusOr<std::vector<measurement::RawSpec>> ReadSpecs(const v1::MeasureHeader& header,
                                                            const Limits& limits);

// An error of the engine with its fields as paths of frames: "specs[0].k" becomes
// "header.specs[0].trustworthiness_continuity.k", "labels" becomes "header.labels"; "projection..."
// stays.
absl::Status AsWireError(const absl::Status& status, const v1::MeasureHeader& header);

// Appends one part of the labels. BAD_LABELS: another kind than before, not finite, more than
// `rows` in all; MISSING_FIELD: none at all. Fields are `field`.
absl::Status AppendLabels(const v1::Labels& part, int64_t rows, std::string_view field,
                          measurement::Labels* labels);
int64_t LabelCount(const measurement::Labels& labels);

// Scores, seeds, and the errors of skipped measures; without local arrays and run_info.
void WriteScores(const std::vector<measurement::MeasureSpec>& specs,
                 const measurement::ProjectionScores& scores, v1::MeasureScores* out);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_CODEC_H_
