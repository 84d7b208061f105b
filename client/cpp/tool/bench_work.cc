#include "client/cpp/tool/bench_work.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/network.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"
#include "tenon/measure_spec.h"

namespace tenon::tool {
namespace {

constexpr const char* kKinds[] = {"contract", "measure", "upload", "download"};
constexpr int64_t kMaxWeight = 1000;
constexpr int64_t kInlineBytes = 65536;

Error BadMix(const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("--mix: ", what)).Field("--mix");
}

int64_t BytesOf(const std::vector<client::Operand>& operands) {
  int64_t bytes = 0;
  for (const client::Operand& operand : operands) {
    bytes += static_cast<int64_t>(operand.tensor.bytes.size());
  }
  return bytes;
}

int64_t BytesOf(const std::vector<client::ContractResult>& results) {
  int64_t bytes = 0;
  for (const client::ContractResult& result : results) bytes += result.tensor.buffer.size_bytes();
  return bytes;
}

// A call for every request.
BenchOutcome ContractOnce(client::Client* client, const BenchPlan& plan, const std::string& kind) {
  const client::ContractRequest& request = plan.contraction(kind);
  const auto outcome = client->Contract(request, plan.call_options());
  BenchOutcome answer;
  answer.status = outcome.status();
  if (outcome.ok()) answer.bytes = BytesOf(request.operands) + BytesOf(outcome->results);
  return answer;
}

absl::Status ReadAll(client::MeasureStream* stream) {
  for (;;) {
    TENON_ASSIGN_OR_RETURN(const auto item, stream->Next());
    if (!item.has_value()) return absl::OkStatus();
    TENON_RETURN_IF_ERROR(item->status);
  }
}

BenchOutcome MeasureOnce(client::Client* client, const BenchPlan& plan) {
  BenchOutcome answer;
  auto stream = client->Measure(plan.Measurement(), plan.call_options());
  answer.status = stream.ok() ? ReadAll(&*stream) : stream.status();
  return answer;
}

// One Contract call that is kept open: every request is a set. The call lives on a thread of its
// own, since the library drives a call from begin to end; a broken one is begun anew.
class OpenContraction {
 public:
  OpenContraction(client::Client client, const BenchPlan* plan)
      : client_(std::move(client)), plan_(plan) {}
  ~OpenContraction() { Close(); }

  BenchOutcome Run() {
    std::unique_lock lock(mutex_);
    if (ended_) {
      lock.unlock();
      Close();
      lock.lock();
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { Call(); });
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answered_ || ended_; });
    BenchOutcome outcome;
    outcome.bytes = std::exchange(bytes_, 0);
    if (!std::exchange(answered_, false)) outcome.status = status_;
    return outcome;
  }

 private:
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    closing_ = ended_ = asked_ = false;
  }

  void Call() {
    client::ContractRequest request = plan_->contraction("contract");
    std::vector<client::TensorView> views;
    for (client::Operand& operand : request.operands) {
      views.push_back(operand.tensor);
      operand.varying = true;
    }
    request.next_set = [&](int64_t, std::vector<client::TensorView>* out) -> absl::StatusOr<bool> {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return asked_ || closing_ || ended_; });
      *out = views;
      return std::exchange(asked_, false);
    };
    client::ContractCallbacks callbacks;
    callbacks.on_result = [&](client::ContractResult result) {
      {
        std::lock_guard lock(mutex_);
        answered_ = true;
        bytes_ = BytesOf(request.operands) + result.tensor.buffer.size_bytes();
      }
      changed_.notify_all();
      return absl::OkStatus();
    };
    const absl::Status status =
        client_.Contract(request, plan_->call_options(), callbacks).status();
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
      status_ =
          status.ok() ? Error(Reason::kInternal, "the call ended before its last set") : status;
    }
    changed_.notify_all();
  }

  client::Client client_;
  const BenchPlan* const plan_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false, answered_ = false, ended_ = false, closing_ = false;
  int64_t bytes_ = 0;
  absl::Status status_;
};

class MixedWork final : public BenchWork {
 public:
  MixedWork(client::Client client, const BenchPlan* plan)
      : client_(client), plan_(plan), open_(std::move(client), plan) {}

  BenchOutcome Run(int64_t number) override {
    const size_t kind = KindOf(plan_->mix(), number);
    BenchOutcome outcome = RunKind(plan_->mix()[kind].first);
    outcome.kind = kind;
    return outcome;
  }

 private:
  BenchOutcome RunKind(const std::string& kind) {
    if (kind == "measure") return MeasureOnce(&client_, *plan_);
    if (kind == "contract" && plan_->keeps_open()) return open_.Run();
    return ContractOnce(&client_, *plan_, kind);
  }

  client::Client client_;
  const BenchPlan* const plan_;
  OpenContraction open_;
};

absl::StatusOr<int64_t> CountOf(const Arguments& arguments, const char* name, int64_t absent) {
  TENON_ASSIGN_OR_RETURN(const auto value, GetParsed<int64_t>(arguments, name, ParseCount));
  if (!value.has_value()) return absent;
  if (*value >= 1) return *value;
  return Error(Reason::kBadParameter, StrCat("--", name, " is ", *value, "; at least 1 is needed"))
      .Field(StrCat("--", name));
}

// The extents of an einsum's indices: --size for all, --extent INDEX=N for one.
absl::StatusOr<std::map<std::string, int64_t>> ReadExtents(const Arguments& arguments,
                                                           const Network& network) {
  TENON_ASSIGN_OR_RETURN(const int64_t size, CountOf(arguments, "size", 8));
  std::map<std::string, int64_t> extents;
  for (const auto& input : network.inputs) {
    for (const std::string& index : input) extents[index] = size;
  }
  for (const std::string& text : arguments.All("extent")) {
    const size_t equals = text.rfind('=');
    const std::string index = text.substr(0, equals);
    if (equals == std::string::npos || extents.find(index) == extents.end()) {
      return Error(Reason::kBadParameter, StrCat("--extent is '", text,
                                                 "'; expected is INDEX=N with an index of the "
                                                 "expression"))
          .Field("--extent");
    }
    TENON_ASSIGN_OR_RETURN(extents[index], ParseCount(text.substr(equals + 1), "--extent"));
  }
  return extents;
}

// Arrays by the corpus rule for the operands of a network, and the views of them.
absl::Status FillArrays(const std::vector<TensorSpec>& specs, NetworkInput* input) {
  for (size_t k = 0; k < specs.size(); ++k) {
    TENON_ASSIGN_OR_RETURN(Tensor tensor, MakeCorpusTensor(1, k, 1.0, specs[k]));
    input->arrays.push_back(std::move(tensor));
  }
  for (const Tensor& tensor : input->arrays) input->request.operands.emplace_back(tensor);
  return absl::OkStatus();
}

absl::Status MakeEinsum(const std::string& text, const Arguments& arguments, NetworkInput* input) {
  TENON_ASSIGN_OR_RETURN(const Network network, ParseEinsum(text));
  TENON_ASSIGN_OR_RETURN(auto extents, ReadExtents(arguments, network));
  const std::string name = arguments.Get("dtype").value_or("float64");
  const auto dtype = DTypeFromName(name);
  if (!dtype.ok() || !IsContractionDType(*dtype)) {
    return Error(Reason::kBadParameter, StrCat("--dtype is '", name,
                                               "'; expected is float32, float64, complex64 or "
                                               "complex128"))
        .Field("--dtype");
  }
  input->name = input->request.einsum = text;
  std::vector<TensorSpec> specs;
  for (const auto& indices : network.inputs) {
    specs.push_back({*dtype, {}});
    for (const std::string& index : indices) specs.back().shape.push_back(extents[index]);
  }
  return FillArrays(specs, input);
}

}  // namespace

absl::StatusOr<BenchMix> ParseBenchMix(const std::string& text) {
  BenchMix mix;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto& [kind, weight_text] = entry;
    if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds)) {
      return BadMix(
          StrCat("'", kind, "' is no kind of request; there are ", absl::StrJoin(kKinds, ", ")));
    }
    for (const auto& [known, weight] : mix) {
      if (known == kind) return BadMix(StrCat("'", kind, "' is given twice"));
    }
    int64_t weight = 1;
    if (part.find('=') != absl::string_view::npos) {
      TENON_ASSIGN_OR_RETURN(weight, ParseCount(weight_text, "--mix"));
    }
    if (weight < 1 || weight > kMaxWeight) {
      return BadMix(StrCat("the weight of '", kind, "' is ", weight, "; it must lie between 1 and ",
                           kMaxWeight));
    }
    mix.emplace_back(kind, weight);
  }
  return mix;
}

size_t KindOf(const BenchMix& mix, int64_t number) {
  int64_t sum = 0;
  for (const auto& [kind, weight] : mix) sum += weight;
  int64_t place = number % sum;
  for (size_t k = 0; k < mix.size(); ++k) {
    if (place < mix[k].second) return k;
    place -= mix[k].second;
  }
  return 0;
}

std::vector<Option> BenchWorkOptions() {
  return {
      {"mix", "KINDS",
       "What is asked for, with weights: contract, measure, upload, download, such as "
       "contract=9,measure=1 (default: contract)."},
      {"keep-open", "", "Send contractions as sets on one open call per worker."},
      {"size", "N", "Extent of every index of an einsum (default: 8)."},
      {"extent", "INDEX=N", "Extent of one index.", true},
      {"dtype", "TYPE",
       "float32, float64, complex64 or complex128 (default: float64, or the file's)."},
      {"providers", "NAMES", "Providers that may take part, with commas between (default: cpu)."},
      {"threads", "N", "Threads of one contraction on the CPU."},
      {"memory-budget", "SIZE", "Largest planned peak of one contraction, such as 4GiB."},
      {"spec", "SPEC", "A measure, as in 'tenon measure' (default: tnc:k=20 and stress).", true},
      {"rows", "N", "Rows of the data set (default: 500)."},
      {"columns", "N", "Columns of the data set (default: 50)."},
      {"projections", "N", "Projections of two columns in one measurement (default: 4)."},
      {"bytes", "SIZE", "Bytes of one upload or download (default: 64MiB)."},
  };
}

bool BenchPlan::Has(const std::string& kind) const {
  return std::any_of(mix_.begin(), mix_.end(),
                     [&](const auto& part) { return part.first == kind; });
}

absl::StatusOr<std::unique_ptr<BenchPlan>> BenchPlan::Create(const Arguments& arguments,
                                                             const client::CallOptions& options) {
  std::unique_ptr<BenchPlan> plan(new BenchPlan);
  plan->call_options_ = options;
  TENON_ASSIGN_OR_RETURN(plan->mix_, ParseBenchMix(arguments.Get("mix").value_or("contract")));
  plan->keep_open_ = arguments.Has("keep-open");
  TENON_ASSIGN_OR_RETURN(const auto providers,
                         GetParsed<std::vector<std::string>>(arguments, "providers", ParseNames));
  plan->providers_ = providers.value_or(std::vector<std::string>());
  if (plan->Has("contract")) TENON_RETURN_IF_ERROR(plan->ReadContraction(arguments));
  if (plan->Has("measure")) TENON_RETURN_IF_ERROR(plan->ReadMeasurement(arguments));
  TENON_RETURN_IF_ERROR(plan->ReadTransfer(arguments));
  return plan;
}

absl::Status BenchPlan::ReadContraction(const Arguments& arguments) {
  const std::vector<std::string>& positionals = arguments.positionals();
  if (positionals.empty() || !IsNetworkFile(positionals[0])) {
    TENON_RETURN_IF_ERROR(
        MakeEinsum(positionals.empty() ? "ab,bc->ac" : positionals[0], arguments, &network_));
    return SetExecution(arguments, &network_.request.execution);
  }
  for (const char* name : {"size", "extent"}) {
    if (!arguments.Has(name)) continue;
    return Error(Reason::kBadParameter,
                 StrCat("--", name, " is for einsum expressions; a network file has its sizes"))
        .Field(StrCat("--", name));
  }
  TENON_ASSIGN_OR_RETURN(network_, LoadNetworkInput(arguments, true));
  return absl::OkStatus();
}

absl::Status BenchPlan::ReadMeasurement(const Arguments& arguments) {
  TENON_ASSIGN_OR_RETURN(const int64_t rows, CountOf(arguments, "rows", 500));
  TENON_ASSIGN_OR_RETURN(const int64_t columns, CountOf(arguments, "columns", 50));
  TENON_ASSIGN_OR_RETURN(const int64_t projections, CountOf(arguments, "projections", 4));
  spec_texts_ = arguments.All("spec");
  if (spec_texts_.empty()) spec_texts_ = {"tnc:k=20", "stress"};
  for (const std::string& text : spec_texts_) {
    TENON_ASSIGN_OR_RETURN(specs_.emplace_back(), client::ParseMeasureSpec(text));
  }
  TENON_ASSIGN_OR_RETURN(dataset_, MakeCorpusTensor(2, 0, 1.0, {DType::kFloat64, {rows, columns}}));
  for (int64_t i = 0; i < projections; ++i) {
    TENON_ASSIGN_OR_RETURN(Tensor tensor, MakeCorpusTensor(3, static_cast<size_t>(i), 1.0,
                                                           {DType::kFloat64, {rows, 2}}));
    projections_.push_back(std::move(tensor));
  }
  return absl::OkStatus();
}

// An upload is the sum of a vector, a download an outer product: the least work that needs the
// bytes.
absl::Status BenchPlan::ReadTransfer(const Arguments& arguments) {
  if (!Has("upload") && !Has("download")) return absl::OkStatus();
  TENON_ASSIGN_OR_RETURN(const auto size, GetParsed<int64_t>(arguments, "bytes", ParseSize));
  constexpr int64_t kRow = 1024;
  const int64_t elements = std::max<int64_t>(size.value_or(int64_t{64} << 20) / 4 / kRow, 1) * kRow;
  if (Has("upload")) {
    upload_.request.einsum = "a->";
    TENON_RETURN_IF_ERROR(FillArrays({{DType::kFloat32, {elements}}}, &upload_));
  }
  if (Has("download")) {
    download_.request.einsum = "a,b->ab";
    TENON_RETURN_IF_ERROR(
        FillArrays({{DType::kFloat32, {elements / kRow}}, {DType::kFloat32, {kRow}}}, &download_));
  }
  return absl::OkStatus();
}

std::string BenchPlan::Description() const {
  std::vector<std::string> parts;
  for (const auto& [kind, weight] : mix_) {
    std::string text = kind;
    if (kind == "contract") text += StrCat(" ", network_.name, keep_open_ ? " on open calls" : "");
    if (kind == "measure") {
      text += StrCat(" ", absl::StrJoin(spec_texts_, " "), " of ", projections_.size(),
                     " projections of ", dataset_.spec.shape[0], " rows");
    }
    if (kind == "upload")
      text += StrCat(" ", FormatBytes(static_cast<double>(BytesOf(upload_.request.operands))));
    if (kind == "download") {
      text +=
          StrCat(" ", FormatBytes(4.0 * static_cast<double>(download_.arrays[0].spec.shape[0] *
                                                            download_.arrays[1].spec.shape[0])));
    }
    parts.push_back(mix_.size() > 1 ? StrCat(text, " (", weight, ")") : text);
  }
  return absl::StrJoin(parts, ", ");
}

// The handle is the same on every server: it is made from the content.
absl::Status BenchPlan::Prepare(client::Client client) {
  if (!Has("measure")) return absl::OkStatus();
  client::MeasureRequest request = Measurement();
  request.dataset_handle.clear();
  request.dataset = dataset_;
  request.keep_dataset = true;
  TENON_ASSIGN_OR_RETURN(client::MeasureStream stream,
                         client.Measure(std::move(request), call_options_));
  TENON_RETURN_IF_ERROR(ReadAll(&stream));
  dataset_handle_ = stream.summary()->dataset_handle();
  return absl::OkStatus();
}

std::unique_ptr<BenchWork> BenchPlan::MakeWork(client::Client client) const {
  return std::make_unique<MixedWork>(std::move(client), this);
}

const client::ContractRequest& BenchPlan::contraction(const std::string& kind) const {
  if (kind == "upload") return upload_.request;
  return kind == "download" ? download_.request : network_.request;
}

client::MeasureRequest BenchPlan::Measurement() const {
  client::MeasureRequest request;
  request.specs = specs_;
  request.dataset_handle = dataset_handle_;
  if (!providers_.empty()) request.execution.set_provider(providers_[0]);
  int64_t bytes = 0;
  for (const Tensor& tensor : projections_) bytes += tensor.buffer.size_bytes();
  if (bytes < kInlineBytes) {
    for (const Tensor& tensor : projections_) request.inline_projections.push_back({"", tensor});
    return request;
  }
  request.expected_projections = static_cast<int64_t>(projections_.size());
  request.next_projection =
      [this, next = size_t{0}](client::ProjectionInput* out) mutable -> absl::StatusOr<bool> {
    if (next == projections_.size()) return false;
    out->tensor = projections_[next++];
    return true;
  };
  return request;
}

}  // namespace tenon::tool
