#include "server/dataset_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "backends/core/error.h"
#include "server/content_store.h"
#include "server/dataset_upload.h"
#include "server/principal.h"
#include "server/unary.h"
#include "tenon/v1/dataset.grpc.pb.h"

namespace tenon::server {
namespace {

using Kind = ContentStore::Kind;
using Description = ContentStore::Description;

constexpr int32_t kDefaultPageSize = 100;
constexpr int32_t kMaxPageSize = 1000;
constexpr size_t kMaxPageBytes = size_t{2} << 20;  // clients take 4 MiB; a page may be shorter
constexpr char kTokenFormat[] = "v1";

int64_t Ticks(std::chrono::system_clock::time_point time) {
  return time.time_since_epoch().count();
}

// At most, on the wire.
size_t EntryBytes(const Description& entry) {
  constexpr size_t kFixed = 256, kPerAxis = 10;
  return kFixed + entry.owner.size() + entry.display_name.size() +
         entry.spec.shape.size() * kPerAxis;
}

// A page ends at an entry; the next one begins after it, whatever has come or gone meanwhile.
std::string PageToken(const Description& last) {
  return StrCat(kTokenFormat, ".", Ticks(last.last_used), ".", last.handle, ".", last.owner);
}

struct Position {
  int64_t last_used = 0;
  std::string handle, owner;
};

absl::StatusOr<Position> ReadPageToken(const std::string& token, std::string_view prefix) {
  const std::vector<std::string> parts = absl::StrSplit(token, absl::MaxSplits('.', 3));
  Position position;
  if (parts.size() == 4 && parts[0] == kTokenFormat && parts[2].starts_with(prefix) &&
      absl::SimpleAtoi(parts[1], &position.last_used)) {
    position.handle = parts[2];
    position.owner = parts[3];
    return position;
  }
  return Error(Reason::kBadParameter, "the page token is none of this list").Field("page_token");
}

// Whose things a list shows: the caller's, or everybody's (absent).
template <typename Request>
absl::StatusOr<std::optional<std::string>> OwnerOfList(const grpc::ServerContextBase& context,
                                                       const Request& request) {
  Principal caller = PrincipalOf(context);
  if (!request.all_owners()) return std::optional<std::string>(std::move(caller.name));
  if (caller.administrator) return std::optional<std::string>();
  return Error(Reason::kPermissionDenied, "only administrators list what others have")
      .Field("all_owners");
}

// One page of `all`, which is in the order of the list. `write` gets each entry.
template <typename Request, typename Response, typename Write>
absl::Status WritePage(const std::vector<Description>& all, std::string_view prefix,
                       const Request& request, Response* response, const Write& write) {
  if (request.page_size() < 0 || request.page_size() > kMaxPageSize) {
    return Error(Reason::kBadParameter, StrCat("the page size is ", request.page_size(), "; 1 to ",
                                               kMaxPageSize, " is offered"))
        .Field("page_size")
        .Meta("maximum", kMaxPageSize)
        .Meta("actual", request.page_size());
  }
  auto first = all.begin();
  if (!request.page_token().empty()) {
    TENON_ASSIGN_OR_RETURN(const Position position, ReadPageToken(request.page_token(), prefix));
    first = std::find_if(all.begin(), all.end(), [&](const Description& entry) {
      const int64_t used = Ticks(entry.last_used);
      return std::tie(used, position.handle, position.owner) <
             std::tie(position.last_used, entry.handle, entry.owner);
    });
  }
  const int32_t size = request.page_size() == 0 ? kDefaultPageSize : request.page_size();
  auto last = first;
  size_t bytes = 0;
  for (; last != all.end() && last - first < size && bytes < kMaxPageBytes; ++last) {
    write(*last);
    bytes += EntryBytes(*last);
  }
  if (last != all.end()) response->set_next_page_token(PageToken(*(last - 1)));
  int64_t total = 0;
  for (const Description& entry : all) total += entry.size_bytes + entry.resource_bytes;
  response->set_total_bytes(total);
  return absl::OkStatus();
}

using Grpc = v1::DatasetService;
using Lists =
    Grpc::WithCallbackMethod_ListDatasets<Grpc::WithCallbackMethod_ListTensors<Grpc::Service>>;
using Gets = Grpc::WithCallbackMethod_GetDataset<Grpc::WithCallbackMethod_GetTensor<Lists>>;
using Deletes = Grpc::WithCallbackMethod_DeleteDataset<Grpc::WithCallbackMethod_DeleteTensor<Gets>>;
// Client streams come as bytes: see UploadReactor.
using Methods =
    Grpc::WithRawCallbackMethod_CreateDataset<Grpc::WithRawCallbackMethod_CreateTensor<Deletes>>;

class DatasetService final : public Methods {
 public:
  explicit DatasetService(ServerState* state) : state_(state) {}

  grpc::ServerReadReactor<grpc::ByteBuffer>* CreateDataset(grpc::CallbackServerContext* context,
                                                           grpc::ByteBuffer* response) override {
    return new UploadReactor<v1::CreateDatasetRequest, v1::CreateDatasetResponse>(
        context, state_, Kind::kDataset, "tenon.v1.DatasetService/CreateDataset", response);
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* CreateTensor(grpc::CallbackServerContext* context,
                                                          grpc::ByteBuffer* response) override {
    return new UploadReactor<v1::CreateTensorRequest, v1::CreateTensorResponse>(
        context, state_, Kind::kTensor, "tenon.v1.DatasetService/CreateTensor", response);
  }

  grpc::ServerUnaryReactor* GetDataset(grpc::CallbackServerContext* context,
                                       const v1::GetDatasetRequest* request,
                                       v1::GetDatasetResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/GetDataset", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const Description found,
                             Find(Kind::kDataset, CallerOf(*context), request->name()));
      WriteDescription(found, response->mutable_dataset());
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* GetTensor(grpc::CallbackServerContext* context,
                                      const v1::GetTensorRequest* request,
                                      v1::GetTensorResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/GetTensor", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const Description found,
                             Find(Kind::kTensor, CallerOf(*context), request->name()));
      WriteDescription(found, response->mutable_tensor());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListDatasets(grpc::CallbackServerContext* context,
                                         const v1::ListDatasetsRequest* request,
                                         v1::ListDatasetsResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/ListDatasets", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const auto owner, OwnerOfList(*context, *request));
      return WritePage(
          state_->store->List(Kind::kDataset, owner), "datasets/", *request, response,
          [&](const Description& entry) { WriteDescription(entry, response->add_datasets()); });
    });
  }
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context,
                                        const v1::ListTensorsRequest* request,
                                        v1::ListTensorsResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/ListTensors", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const auto owner, OwnerOfList(*context, *request));
      return WritePage(
          state_->store->List(Kind::kTensor, owner), "tensors/", *request, response,
          [&](const Description& entry) { WriteDescription(entry, response->add_tensors()); });
    });
  }

  grpc::ServerUnaryReactor* DeleteDataset(grpc::CallbackServerContext* context,
                                          const v1::DeleteDatasetRequest* request,
                                          v1::DeleteDatasetResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/DeleteDataset", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const int64_t bytes,
                             Delete(Kind::kDataset, CallerOf(*context), request->name()));
      response->set_freed_bytes(bytes);
      return absl::OkStatus();
    });
  }
  grpc::ServerUnaryReactor* DeleteTensor(grpc::CallbackServerContext* context,
                                         const v1::DeleteTensorRequest* request,
                                         v1::DeleteTensorResponse* response) override {
    return Answer(context, "tenon.v1.DatasetService/DeleteTensor", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const int64_t bytes,
                             Delete(Kind::kTensor, CallerOf(*context), request->name()));
      response->set_freed_bytes(bytes);
      return absl::OkStatus();
    });
  }

 private:
  template <typename Body>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::string_view name,
                                   Body&& body) {
    return AnswerNow(context, &state_->metrics, Method::kDataset, name, body);
  }

  // The store's error as one of the field that the contract has.
  static absl::Status AtName(const absl::Status& status) {
    const ErrorDetails details = GetErrorDetails(status);
    Error error(details.reason, std::string(status.message()));
    for (const auto& [key, value] : details.metadata) std::move(error).Meta(key, value);
    return std::move(error).Field("name");
  }

  absl::StatusOr<Description> Find(Kind kind, const std::string& owner, const std::string& name) {
    if (name.empty()) return Error(Reason::kMissingField, "the name is required").Field("name");
    auto found = state_->store->Describe(kind, owner, name);
    if (!found.ok()) return AtName(found.status());
    return found;
  }

  absl::StatusOr<int64_t> Delete(Kind kind, const std::string& owner, const std::string& name) {
    if (name.empty()) return Error(Reason::kMissingField, "the name is required").Field("name");
    auto freed = state_->store->Delete(kind, owner, name);
    if (!freed.ok()) return AtName(freed.status());
    return freed;
  }

  ServerState* const state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeDatasetService(ServerState* state) {
  return std::make_unique<DatasetService>(state);
}

}  // namespace tenon::server
