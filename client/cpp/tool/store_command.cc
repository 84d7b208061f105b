// The commands about what the server keeps: data sets and tensors, which are told alike.

#include <string>
#include <utility>
#include <vector>

#include "backends/core/error.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/json.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/text.h"
#include "client/cpp/tool/values.h"
#include "google/protobuf/util/time_util.h"

namespace tenon::tool {
namespace {

using client::CallOptions;
using client::Client;
using google::protobuf::util::TimeUtil;

// What the two kinds differ in.
struct DatasetKind {
  static constexpr const char* kWord = "dataset";
  static constexpr const char* kThing = "data set";
  using ListRequest = v1::ListDatasetsRequest;
  static auto Create(Client& client, const client::TensorView& array,
                     const client::StoreOptions& store, const CallOptions& options) {
    return client.CreateDataset(array, store, options);
  }
  static auto Get(Client& client, const std::string& name, const CallOptions& options) {
    return client.GetDataset(name, options);
  }
  static auto List(Client& client, const ListRequest& request, const CallOptions& options) {
    return client.ListDatasets(request, options);
  }
  static auto Delete(Client& client, const std::string& name, const CallOptions& options) {
    return client.DeleteDataset(name, options);
  }
  static const auto& Stored(const v1::CreateDatasetResponse& response) {
    return response.dataset();
  }
  static const auto& Page(const v1::ListDatasetsResponse& response) { return response.datasets(); }
};

struct TensorKind {
  static constexpr const char* kWord = "tensor";
  static constexpr const char* kThing = "tensor";
  using ListRequest = v1::ListTensorsRequest;
  static auto Create(Client& client, const client::TensorView& array,
                     const client::StoreOptions& store, const CallOptions& options) {
    return client.CreateTensor(array, store, options);
  }
  static auto Get(Client& client, const std::string& name, const CallOptions& options) {
    return client.GetTensor(name, options);
  }
  static auto List(Client& client, const ListRequest& request, const CallOptions& options) {
    return client.ListTensors(request, options);
  }
  static auto Delete(Client& client, const std::string& name, const CallOptions& options) {
    return client.DeleteTensor(name, options);
  }
  static const auto& Stored(const v1::CreateTensorResponse& response) { return response.tensor(); }
  static const auto& Page(const v1::ListTensorsResponse& response) { return response.tensors(); }
};

struct Call {
  Client client;
  CallOptions options;
};

absl::StatusOr<Call> Prepare(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const CallOptions options, CallOptionsOf(arguments, session));
  return Call{std::move(client), options};
}

// The name, or the 64 digits alone.
template <typename Kind>
std::string FullName(const std::string& argument) {
  const std::string prefix = StrCat(Kind::kWord, "s/");
  return argument.rfind(prefix, 0) == 0 ? argument : prefix + argument;
}

template <typename Stored>
std::string SpecText(const Stored& stored) {
  const std::vector<int64_t> shape(stored.spec().shape().begin(), stored.spec().shape().end());
  return StrCat(ShortEnumName(stored.spec().dtype()), " ", FormatShape(shape));
}

template <typename Stored>
std::string Describe(const Stored& stored) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"name", stored.name()},
      {"array", SpecText(stored)},
      {"size", FormatBytes(static_cast<double>(stored.size_bytes()))},
      {"first stored", TimeUtil::ToString(stored.create_time())}};
  if (!stored.display_name().empty()) rows.emplace_back("text", stored.display_name());
  if (!stored.owner().empty()) rows.emplace_back("owner", stored.owner());
  if (stored.has_expire_time()) {
    rows.emplace_back("kept until", TimeUtil::ToString(stored.expire_time()));
  }
  rows.emplace_back("calls at work", StrCat(stored.active_calls()));
  if constexpr (std::is_same_v<Stored, v1::Dataset>) {
    rows.emplace_back("built from it", FormatBytes(static_cast<double>(stored.resource_bytes())));
  }
  return FormatPairs(rows);
}

template <typename Kind>
absl::Status PutOne(const Arguments& arguments, const Session& session) {
  const std::string& path = arguments.positionals()[0];
  TENON_ASSIGN_OR_RETURN(const Tensor tensor, LoadArrayFile(path));
  client::StoreOptions store;
  store.request_id = arguments.Get("request-id").value_or("");
  store.display_name = arguments.Get("display-name").value_or(path.substr(0, 256));
  store.checksums = arguments.Has("checksums");
  TENON_ASSIGN_OR_RETURN(const auto ttl, GetParsed<double>(arguments, "ttl", ParsePositive));
  if (ttl.has_value()) store.ttl = absl::Seconds(*ttl);
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  TENON_ASSIGN_OR_RETURN(const auto response,
                         Kind::Create(call.client, tensor, store, call.options));
  *session.out << (arguments.Has("json")
                       ? Dump(MessageToJson(response)) + "\n"
                       : Describe(Kind::Stored(response)) +
                             (response.existed() ? "it was there already\n" : ""));
  return absl::OkStatus();
}

template <typename Kind>
absl::Status ListAll(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  typename Kind::ListRequest request;
  request.set_all_owners(arguments.Has("all-owners"));
  Json all = Json::array();
  std::vector<std::vector<std::string>> rows;
  do {
    TENON_ASSIGN_OR_RETURN(const auto page, Kind::List(call.client, request, call.options));
    for (const auto& stored : Kind::Page(page)) {
      if (arguments.Has("json")) all.push_back(MessageToJson(stored));
      rows.push_back({stored.name(), SpecText(stored),
                      FormatBytes(static_cast<double>(stored.size_bytes())),
                      TimeUtil::ToString(stored.last_use_time()), stored.display_name()});
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  *session.out << (arguments.Has("json")
                       ? Dump(all) + "\n"
                       : FormatTable({"name", "array", "size", "last used", "text"}, rows));
  return absl::OkStatus();
}

template <typename Kind>
absl::Status ShowOne(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  const std::string name = FullName<Kind>(arguments.positionals()[0]);
  TENON_ASSIGN_OR_RETURN(const auto stored, Kind::Get(call.client, name, call.options));
  *session.out << (arguments.Has("json") ? Dump(MessageToJson(stored)) + "\n" : Describe(stored));
  return absl::OkStatus();
}

template <typename Kind>
absl::Status DeleteOne(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(Call call, Prepare(arguments, session));
  const std::string name = FullName<Kind>(arguments.positionals()[0]);
  TENON_ASSIGN_OR_RETURN(const int64_t bytes, Kind::Delete(call.client, name, call.options));
  *session.out << (arguments.Has("json")
                       ? Dump(Json{{"freed_bytes", bytes}})
                       : StrCat("freed ", FormatBytes(static_cast<double>(bytes))))
               << "\n";
  return absl::OkStatus();
}

template <typename Kind>
CommandSpec SpecOf(const char* verb, const std::string& summary, const std::string& argument) {
  CommandSpec spec;
  spec.name = StrCat(Kind::kWord, " ", verb);
  spec.usage = argument;
  spec.summary = summary;
  spec.example = StrCat("tenon ", spec.name,
                        argument == "NAME" ? StrCat(" ", Kind::kWord, "s/0123abcd...")
                        : argument.empty() ? " --json"
                                           : " array.npy --display-name first --ttl 3600");
  spec.options.push_back({"json", "", "Print as JSON what the server tells."});
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = spec.max_positionals = argument.empty() ? 0 : 1;
  return spec;
}

template <typename Kind>
CommandSpec PutSpec(const std::string& details) {
  CommandSpec spec = SpecOf<Kind>("put", StrCat("Stores a ", Kind::kThing, " on the server."),
                                  "FILE.npy | FILE.npz:NAME");
  spec.details = details;
  const std::vector<Option> more = {
      {"display-name", "TEXT", "Text for people; default: the file's name."},
      {"ttl", "SECONDS", "Keep it so long after its last use."},
      {"checksums", "", "Every chunk carries a checksum."},
      {"request-id", "TEXT", "Name of the request in logs."}};
  spec.options.insert(spec.options.begin(), more.begin(), more.end());
  return spec;
}

template <typename Kind>
CommandSpec ListSpec() {
  CommandSpec spec =
      SpecOf<Kind>("list", StrCat("Lists the ", Kind::kThing, "s that the server keeps."), "");
  spec.options.insert(spec.options.begin(),
                      {"all-owners", "", "Of all principals; only for administrators."});
  return spec;
}

int Finish(const absl::Status& status, const Session& session) {
  return status.ok() ? kExitOk : Fail(session, status);
}

}  // namespace

CommandSpec DatasetPutSpec() {
  return PutSpec<DatasetKind>("Its name is for 'tenon measure --dataset'.");
}
CommandSpec TensorPutSpec() {
  return PutSpec<TensorKind>("Its name stands for a file where 'tenon contract' takes operands.");
}
CommandSpec DatasetListSpec() { return ListSpec<DatasetKind>(); }
CommandSpec TensorListSpec() { return ListSpec<TensorKind>(); }
CommandSpec DatasetShowSpec() {
  return SpecOf<DatasetKind>("show", "Describes a stored data set.", "NAME");
}
CommandSpec TensorShowSpec() {
  return SpecOf<TensorKind>("show", "Describes a stored tensor.", "NAME");
}
CommandSpec DatasetDeleteSpec() {
  return SpecOf<DatasetKind>("delete", "Forgets a data set and what was built from it.", "NAME");
}
CommandSpec TensorDeleteSpec() {
  return SpecOf<TensorKind>("delete", "Forgets a stored tensor.", "NAME");
}

int RunDatasetPut(const Arguments& arguments, const Session& session) {
  return Finish(PutOne<DatasetKind>(arguments, session), session);
}
int RunTensorPut(const Arguments& arguments, const Session& session) {
  return Finish(PutOne<TensorKind>(arguments, session), session);
}
int RunDatasetList(const Arguments& arguments, const Session& session) {
  return Finish(ListAll<DatasetKind>(arguments, session), session);
}
int RunTensorList(const Arguments& arguments, const Session& session) {
  return Finish(ListAll<TensorKind>(arguments, session), session);
}
int RunDatasetShow(const Arguments& arguments, const Session& session) {
  return Finish(ShowOne<DatasetKind>(arguments, session), session);
}
int RunTensorShow(const Arguments& arguments, const Session& session) {
  return Finish(ShowOne<TensorKind>(arguments, session), session);
}
int RunDatasetDelete(const Arguments& arguments, const Session& session) {
  return Finish(DeleteOne<DatasetKind>(arguments, session), session);
}
int RunTensorDelete(const Arguments& arguments, const Session& session) {
  return Finish(DeleteOne<TensorKind>(arguments, session), session);
}

}  // namespace tenon::tool
