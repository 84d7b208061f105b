// What `tenon bench` asks a server for.

#ifndef TENON_CLIENT_CPP_TOOL_BENCH_WORK_H_
#define TENON_CLIENT_CPP_TOOL_BENCH_WORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tool/arguments.h"
#include "client/cpp/tool/bench_load.h"
#include "client/cpp/tool/network_input.h"
#include "tenon/client.h"

namespace tenon::tool {

// The kinds of requests, by their names on the command line, with their shares in the mix.
using BenchMix = std::vector<std::pair<std::string, int64_t>>;

// "contract=9,measure=1": known kinds, each at most once, with weights from 1 to 1000.
// BAD_PARAMETER for the rest.
absl::StatusOr<BenchMix> ParseBenchMix(const std::string& text);

// Position in the mix of request `number`: each run of as many requests as the weights sum up to
// has every kind as often as its weight says.
size_t KindOf(const BenchMix& mix, int64_t number);

// The options that say what is asked for.
std::vector<Option> BenchWorkOptions();

// What all workers share; it outlives them.
class BenchPlan {
 public:
  // Reads options and files, and makes the arrays.
  static absl::StatusOr<std::unique_ptr<BenchPlan>> Create(const Arguments& arguments,
                                                           const client::CallOptions& options);

  const BenchMix& mix() const { return mix_; }
  bool keeps_open() const { return keep_open_; }
  // For people: what one request of each kind is.
  std::string Description() const;

  // Brings the data set of measurements to a server that the client is connected to.
  absl::Status Prepare(client::Client client);
  // The work of one worker.
  std::unique_ptr<BenchWork> MakeWork(client::Client client) const;

  const client::CallOptions& call_options() const { return call_options_; }
  const client::ContractRequest& contraction(const std::string& kind) const;
  client::MeasureRequest Measurement() const;

 private:
  BenchPlan() = default;
  absl::Status ReadContraction(const Arguments& arguments);
  absl::Status ReadMeasurement(const Arguments& arguments);
  absl::Status ReadTransfer(const Arguments& arguments);
  bool Has(const std::string& kind) const;

  client::CallOptions call_options_;
  BenchMix mix_;
  bool keep_open_ = false;
  NetworkInput network_, upload_, download_;
  std::vector<v1::MeasureSpec> specs_;
  std::vector<std::string> spec_texts_;
  std::vector<std::string> providers_;
  Tensor dataset_;
  std::vector<Tensor> projections_;
  std::string dataset_handle_;
};

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_BENCH_WORK_H_
