#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/measure_output.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/progress_bar.h"
#include "client/cpp/tool/request_options.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"

namespace tenon::tool {
namespace {

constexpr double kProgressSeconds = 0.25;

// What the request's views show.
struct MeasureInput {
  client::MeasureRequest request;
  Tensor dataset;
  Tensor label_array;
  std::vector<int64_t> int_labels;
  std::vector<double> double_labels;
  std::vector<std::string> text_labels;
  // The projection that is being sent.
  Tensor projection;
  size_t next_file = 0;
};

Error BadLabels(const std::string& path, std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("labels '", path, "': ", what)).Field("--labels");
}

template <typename From, typename To>
void Widen(const Tensor& tensor, int64_t count, std::vector<To>* to) {
  const From* from = tensor.buffer.as<From>();
  to->assign(from, from + count);
}

// Whole numbers of any width as int64; false for other element types.
bool WidenIntegers(const Tensor& tensor, int64_t count, std::vector<int64_t>* labels) {
  switch (tensor.spec.dtype) {
    case DType::kBool:
    case DType::kUint8:
      Widen<uint8_t>(tensor, count, labels);
      return true;
    case DType::kInt8:
      Widen<int8_t>(tensor, count, labels);
      return true;
    case DType::kInt16:
      Widen<int16_t>(tensor, count, labels);
      return true;
    case DType::kUint16:
      Widen<uint16_t>(tensor, count, labels);
      return true;
    case DType::kInt32:
      Widen<int32_t>(tensor, count, labels);
      return true;
    case DType::kUint32:
      Widen<uint32_t>(tensor, count, labels);
      return true;
    case DType::kInt64:
      Widen<int64_t>(tensor, count, labels);
      return true;
    case DType::kUint64: {
      const uint64_t* values = tensor.buffer.as<uint64_t>();
      Widen<uint64_t>(tensor, count, labels);
      constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return std::all_of(values, values + count, [](uint64_t value) { return value <= kMax; });
    }
    default:
      return false;
  }
}

absl::Status LoadLabelArray(const std::string& path, MeasureInput* input) {
  TENON_ASSIGN_OR_RETURN(const Tensor tensor, LoadArrayFile(path));
  TENON_ASSIGN_OR_RETURN(const int64_t count, CheckedElementCount(tensor.spec.shape));
  const std::vector<int64_t>& shape = tensor.spec.shape;
  if (shape.empty() || *std::max_element(shape.begin(), shape.end()) != count) {
    return BadLabels(path,
                     StrCat("one label per row is needed, the shape is ", FormatShape(shape)));
  }
  if (tensor.spec.dtype == DType::kFloat32) {
    Widen<float>(tensor, count, &input->double_labels);
    input->request.labels = std::span<const double>(input->double_labels);
  } else if (tensor.spec.dtype == DType::kFloat64) {
    Widen<double>(tensor, count, &input->double_labels);
    input->request.labels = std::span<const double>(input->double_labels);
  } else if (WidenIntegers(tensor, count, &input->int_labels)) {
    input->request.labels = std::span<const int64_t>(input->int_labels);
  } else {
    return BadLabels(path, StrCat("labels of ", DTypeName(tensor.spec.dtype), " don't fit"));
  }
  return absl::OkStatus();
}

absl::Status LoadLabels(const std::string& path, MeasureInput* input) {
  if (path.ends_with(".npy") || IsNpz(path)) return LoadLabelArray(path, input);
  TENON_ASSIGN_OR_RETURN(const Buffer bytes, ReadFile(path));
  input->text_labels = absl::StrSplit(ToAbsl(AsText(bytes)), '\n');
  // The end of the last line is no line.
  if (!input->text_labels.empty() && input->text_labels.back().empty()) {
    input->text_labels.pop_back();
  }
  input->request.labels = std::span<const std::string>(input->text_labels);
  return absl::OkStatus();
}

absl::Status LoadDataset(const Arguments& arguments, MeasureInput* input) {
  const auto file = arguments.Get("hd");
  const auto handle = arguments.Get("dataset");
  if (file.has_value() == handle.has_value()) {
    return Error(Reason::kBadParameter, "exactly one of --hd and --dataset must be given")
        .Field("--hd");
  }
  if (handle.has_value()) {
    input->request.dataset_handle = *handle;
  } else {
    TENON_ASSIGN_OR_RETURN(input->dataset, LoadArrayFile(*file));
    input->request.dataset = input->dataset;
    input->request.keep_dataset = arguments.Has("keep");
  }
  const auto labels = arguments.Get("labels");
  return labels.has_value() ? LoadLabels(*labels, input) : absl::OkStatus();
}

absl::Status SetSource(const Arguments& arguments, MeasureInput* input) {
  const auto glob = arguments.Get("server-files");
  if (arguments.positionals().empty() != glob.has_value()) {
    return Error(Reason::kBadParameter,
                 "projections are given either as files or by --server-files");
  }
  if (glob.has_value()) {
    v1::ServerFilesSource& source = input->request.server_files.emplace();
    source.set_glob(*glob);
    TENON_ASSIGN_OR_RETURN(const auto limit, GetParsed<int64_t>(arguments, "limit", ParseCount));
    if (limit.has_value()) source.set_limit(*limit);
    return absl::OkStatus();
  }
  std::vector<std::string> files;
  for (const std::string& path : arguments.positionals()) {
    TENON_ASSIGN_OR_RETURN(const std::vector<std::string> arrays, ArraysIn(path));
    files.insert(files.end(), arrays.begin(), arrays.end());
  }
  input->request.expected_projections = static_cast<int64_t>(files.size());
  input->request.next_projection =
      [files, input](client::ProjectionInput* projection) -> absl::StatusOr<bool> {
    if (input->next_file == files.size()) return false;
    projection->name = files[input->next_file++];
    TENON_ASSIGN_OR_RETURN(input->projection, LoadArrayFile(projection->name));
    projection->tensor = input->projection;
    return true;
  };
  return absl::OkStatus();
}

absl::Status SetSpecs(const Arguments& arguments, client::MeasureRequest* request) {
  for (const std::string& text : arguments.All("spec")) {
    absl::StatusOr<v1::MeasureSpec> spec = client::ParseMeasureSpec(text);
    if (!spec.ok()) {
      return Error(GetErrorDetails(spec.status()).reason,
                   StrCat("--spec '", text, "': ", spec.status().message()));
    }
    request->specs.push_back(*std::move(spec));
  }
  if (!request->specs.empty()) return absl::OkStatus();
  return Error(Reason::kBadParameter, "no measure is given; add --spec, such as --spec tnc:k=20")
      .Field("--spec");
}

absl::Status SetPairOrder(const std::string& text, v1::MeasureExecution* execution) {
  if (text == "memory") {
    execution->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_MEMORY);
  } else if (text == "external") {
    execution->set_pair_order_strategy(v1::PAIR_ORDER_STRATEGY_EXTERNAL);
  } else if (text != "auto") {
    return Error(Reason::kBadParameter,
                 StrCat("--pair-order is '", text, "'; expected is auto, memory or external"))
        .Field("--pair-order");
  }
  return absl::OkStatus();
}

absl::Status SetExecution(const Arguments& arguments, v1::MeasureExecution* execution) {
  execution->set_provider(arguments.Get("provider").value_or(""));
  execution->set_allow_fallback(arguments.Has("fallback"));
  execution->set_geodesic(arguments.Has("geodesic"));
  if (arguments.Has("stop-on-error")) {
    execution->set_on_error(v1::ON_ERROR_STOP);
  } else if (arguments.Has("skip-measures")) {
    execution->set_on_error(v1::ON_ERROR_SKIP_MEASURE);
  }
  TENON_ASSIGN_OR_RETURN(const auto budget,
                         GetParsed<int64_t>(arguments, "memory-budget", ParseSize));
  if (budget.has_value()) execution->set_memory_budget_bytes(*budget);
  TENON_ASSIGN_OR_RETURN(const auto temporary,
                         GetParsed<int64_t>(arguments, "temporary-budget", ParseSize));
  if (temporary.has_value()) execution->set_temporary_budget_bytes(*temporary);
  TENON_ASSIGN_OR_RETURN(const auto in_flight,
                         GetParsed<int32_t>(arguments, "in-flight", ParseSmallCount));
  if (in_flight.has_value()) execution->set_in_flight(*in_flight);
  TENON_ASSIGN_OR_RETURN(const auto threads,
                         GetParsed<int32_t>(arguments, "threads", ParseSmallCount));
  if (threads.has_value()) execution->set_threads(*threads);
  TENON_ASSIGN_OR_RETURN(const auto batch, GetParsed<int32_t>(arguments, "batch", ParseSmallCount));
  if (batch.has_value()) execution->set_batch_size(*batch);
  execution->set_temporary_directory(arguments.Get("temporary-directory").value_or(""));
  TENON_RETURN_IF_ERROR(SetPairOrder(arguments.Get("pair-order").value_or("auto"), execution));
  if (arguments.Has("forget-resources")) execution->set_keep_resources(false);
  const std::string dtype = arguments.Get("dtype").value_or("float64");
  if (dtype != "float32" && dtype != "float64") {
    return Error(Reason::kBadParameter,
                 StrCat("--dtype is '", dtype, "'; expected is float32 or float64"))
        .Field("--dtype");
  }
  execution->set_compute_dtype(dtype == "float32" ? v1::DATA_TYPE_FLOAT32 : v1::DATA_TYPE_FLOAT64);
  return absl::OkStatus();
}

absl::Status Load(const Arguments& arguments, const Session& session, MeasureInput* input) {
  TENON_RETURN_IF_ERROR(SetSpecs(arguments, &input->request));
  TENON_RETURN_IF_ERROR(SetExecution(arguments, &input->request.execution));
  TENON_RETURN_IF_ERROR(SetSource(arguments, input));
  TENON_RETURN_IF_ERROR(LoadDataset(arguments, input));
  input->request.return_local = arguments.Has("local");
  input->request.request_id = arguments.Get("request-id").value_or("");
  TENON_RETURN_IF_ERROR(
      SetRequestOptions(arguments, &input->request.execution, &input->request.result));
  if (session.err_is_terminal) {
    input->request.execution.set_progress_interval_seconds(kProgressSeconds);
  }
  const auto folder = arguments.Get("local");
  if (!folder.has_value() || IsNpz(*folder)) return absl::OkStatus();
  std::error_code error;
  std::filesystem::create_directories(*folder, error);
  if (!error) return absl::OkStatus();
  return Error(Reason::kPermissionDenied,
               StrCat("can't make the folder '", *folder, "': ", error.message()))
      .Field("--local");
}

std::string ProgressText(const v1::MeasureProgress& progress) {
  if (progress.phase() == v1::MEASURE_PHASE_QUEUED) {
    return StrCat("queued behind ", progress.queue_position());
  }
  std::string text = StrCat(ShortEnumName(progress.phase()), ", ", progress.projections_done());
  if (progress.has_projections_total()) text += StrCat(" of ", progress.projections_total());
  text += " projections done";
  if (progress.has_left_seconds()) {
    text += StrCat(", ", FormatSeconds(progress.left_seconds()), " left");
  }
  return text;
}

// Prints what comes until the end; how many projections have no scores.
absl::StatusOr<int64_t> PrintItems(const Arguments& arguments, const Session& session,
                                   client::MeasureStream* stream, ProgressBar* bar) {
  size_t name_width = 10;
  for (const std::string& file : arguments.positionals()) {
    name_width = std::max(name_width, file.size());
  }
  MeasureTable table(arguments.All("spec"), name_width, session.columns, session.out);
  int64_t failed = 0;
  LocalOutput local(arguments.Get("local"));
  for (;;) {
    TENON_ASSIGN_OR_RETURN(std::optional<client::MeasureItem> item, stream->Next());
    if (!item.has_value()) {
      TENON_RETURN_IF_ERROR(local.Close());
      return failed;
    }
    bar->Clear();
    if (!item->status.ok()) ++failed;
    TENON_RETURN_IF_ERROR(local.Add(&*item));
    if (arguments.Has("json")) {
      *session.out << Dump(ItemToJson(*item)) << "\n" << std::flush;
    } else {
      table.Print(*item);
    }
  }
}

absl::StatusOr<int> Run(const Arguments& arguments, const Session& session) {
  MeasureInput input;
  TENON_RETURN_IF_ERROR(Load(arguments, session, &input));
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  TENON_ASSIGN_OR_RETURN(input.request.pool, OpenPool(arguments, client, options));
  ProgressBar bar(session.err, session.err_is_terminal);
  if (bar.enabled()) {
    input.request.on_progress = [&bar](const v1::MeasureProgress& progress) {
      bar.Update(progress.has_fraction() ? std::optional(progress.fraction()) : std::nullopt,
                 ProgressText(progress));
    };
  }
  TENON_ASSIGN_OR_RETURN(client::MeasureStream stream,
                         client.Measure(std::move(input.request), options));
  TENON_ASSIGN_OR_RETURN(const int64_t failed, PrintItems(arguments, session, &stream, &bar));
  bar.Clear();
  if (!arguments.Has("json")) {
    *session.out << FormatSummary(*stream.summary());
  } else if (arguments.Has("summary")) {
    Json line;
    line["summary"] = MessageToJson(*stream.summary());
    *session.out << Dump(line) << "\n";
  }
  return failed == 0 ? kExitOk : kExitRefused;
}

}  // namespace

CommandSpec MeasureCommandSpec() {
  CommandSpec spec;
  spec.name = "measure";
  spec.usage = "--hd HD.npy --spec SPEC [--spec SPEC ...] LD0.npy LD1.npy ...";
  spec.summary = "Scores projections of a data set; results are printed as they arrive, in order.";
  spec.details =
      "A spec is a measure with its parameters: stress, tnc:k=20, snc:k=10,seed=3,rng=numpy,\n"
      "ivm:measure=silhouette, c_evm:clustering=dbscan,dbscan.eps=0.3. 'tenon measures' lists "
      "them.\n"
      "Every array may stand in an archive, FILE.npz:NAME; of a projections' FILE.npz all arrays "
      "are\n"
      "scored.";
  spec.exit_codes =
      "0 success, 2 usage or input, 3 the server refused the request or at least one projection, 4 "
      "the server can't be reached, 130 interrupted.";
  spec.example = "tenon measure --hd hd.npy --spec tnc:k=20 --spec stress pca.npy runs.npz";
  spec.options = {
      {"hd", "FILE.npy", "The data set: n rows, d columns."},
      {"dataset", "HANDLE", "A data set that the server keeps, in place of --hd."},
      {"keep", "", "Keep the data set on the server; the summary tells its handle."},
      {"labels", "FILE",
       "One label per row: numbers in a .npy or .npz file, or a text file of one per line."},
      {"spec", "SPEC", "A measure to evaluate.", true},
      {"server-files", "GLOB",
       "Take the projections from .npy files below the server's --data_root, in natural order; "
       "quote the pattern, such as 'runs/run*.npy'."},
      {"limit", "N", "With --server-files: at most so many."},
      {"local", "DIR",
       "Write the scores of single rows to DIR/INDEX.SPEC.KEY.npy, or to one archive, FILE.npz."},
      {"provider", "NAME", "Provider that builds resources (default: cpu)."},
      {"fallback", "", "Build on the CPU what the provider does not build."},
      {"dtype",
       "TYPE",
       "Element type of distances, float64 (default) or float32.",
       false,
       {"float64", "float32"}},
      {"geodesic", "",
       "Distances of the data set on the sphere: columns 0 and 1 are longitude and "
       "latitude."},
      {"memory-budget", "SIZE", "Largest planned peak, such as 4GiB."},
      {"temporary-budget", "SIZE",
       "Largest size of temporary files on the server; without it there are none."},
      {"temporary-directory", "DIR", "Folder for them, relative to the server's --scratch_dir."},
      {"pair-order", "HOW",
       "How srho and nm_stress order pairs: auto (default), memory, or external (in files).", false,
       EnumNames<v1::PairOrderStrategy>()},
      {"in-flight", "N", "Projections that may be in flight."},
      {"batch", "N", "Projections that may be built together; never changes a score."},
      {"forget-resources", "",
       "Keep nothing of what is built from a stored data set for further calls."},
      {"threads", "N", "Threads on the CPU; never changes a score."},
      {"stop-on-error", "", "End at the first projection that can't be scored."},
      {"skip-measures", "", "Where single measures fail, give the scores of the others."},
      {"json", "",
       "Print one JSON object a line for each projection: 'index', 'name', and 'scores', "
       "'specs', 'seconds', or 'error'. NaN and infinity are null."},
      {"summary", "", "With --json: a last line {\"summary\": ...}."},
      {"request-id", "TEXT", "Name of the request in logs (default: one is drawn)."},
      SharedMemoryOption(),
  };
  for (Option& option : RequestOptions()) spec.options.push_back(std::move(option));
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.max_positionals = 1000000;
  return spec;
}

int RunMeasure(const Arguments& arguments, const Session& session) {
  const absl::StatusOr<int> code = Run(arguments, session);
  return code.ok() ? *code : Fail(session, code.status());
}

}  // namespace tenon::tool
