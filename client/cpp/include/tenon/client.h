// A client of a Tenon server. tenon/tenon.h has all of the library, with a tour.
//
//   auto client = tenon::client::Client::Connect("127.0.0.1:50551");
//   tenon::client::ContractRequest request;
//   request.einsum = "ab,bc->ac";
//   request.operands = {a, b};                       // tenon::Tensor, or a TensorView
//   auto outcome = client->Contract(request);
//   if (outcome.ok()) Use(outcome->results[0].tensor);
//
// Options and reports are the messages of proto/tenon/v1 themselves (tenon::v1::...), so that
// everything the wire can say can be said here, explained in one place; nothing of gRPC shows.
// Functions never throw; errors are absl::Status, explained in tenon/call.h.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_CLIENT_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_CLIENT_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenon/async.h"
#include "tenon/call.h"
#include "tenon/contract.h"
#include "tenon/job.h"
#include "tenon/measure.h"
#include "tenon/measure_spec.h"
#include "tenon/shared_memory.h"
#include "tenon/store.h"
#include "tenon/v1/admin.pb.h"
#include "tenon/v1/provider.pb.h"

namespace tenon::client {

class SharedPlacement;

struct ClientOptions {
  // Deadline of calls that name none.
  absl::Duration default_timeout = absl::Hours(1);
  // What calls do that name nothing else: where the server says that it is full, starts or shuts
  // down, or the connection breaks, the same call, with the same request_id, is sent again, as long
  // as its whole input is still there (no set and no projection has been asked of a generator) and
  // nothing has been handed out (to on_result, on_improvement or from Next()). Where no server has
  // answered this client yet, an address that can't be reached is an error at once. Not repeated:
  // DeleteJob and the like, and the operator's verbs. WatchJob and ReadJobResult have policies of
  // their own. {.patience = absl::ZeroDuration()} switches it off.
  RetryPolicy retry = RetryOfCalls();
  // Size of uploaded chunks in bytes, 4096 to 4193280; lowered to what the server grants.
  int32_t chunk_bytes = 1 << 20;
  // Threads of background calls at most, 1 to 1024; see Client::Async.
  int async_threads = 16;
  // Goes before gRPC's own user agent, for the server's log.
  std::string user_agent = "tenon-cpp";

  // Encrypts the connection and checks the server's certificate; each of the next three does so,
  // too. Unix sockets are never encrypted. Files are PEM and read once.
  bool tls = false;
  std::string tls_ca = "";  // who signs the server's certificate; empty: the system's
  std::string tls_cert = "", tls_key = "";  // the client's own, for servers that ask for one
  // Name that the server's certificate has. Empty: the host of the address.
  std::string tls_server_name = "";
  // Goes with every call, for servers that ask for one. Empty: none. Only over an encrypted
  // connection or to this machine, unless allowed.
  std::string token = "";
  bool allow_plaintext_token = false;
};

// A handle on a connection, cheap to copy; copies share the connection. Thread-safe: any number of
// calls may run at once. Calls block until the answer is there; Async and its like do not.
class Client {
 public:
  // `address` is "host:port", "unix:/path", or another target that gRPC understands. No connection
  // is made before the first call, so an unreachable server shows there (IsUnreachable).
  // BAD_PARAMETER for an empty address, options out of range or files that can't be used.
  static absl::StatusOr<Client> Connect(const std::string& address, ClientOptions options);
  // With the options' defaults.
  static absl::StatusOr<Client> Connect(const std::string& address);

  // Contracts. Operands below 64 KiB go with the header, up to 3 MiB together; larger ones are
  // sent in chunks, on a thread of the call, after the server has accepted the header. What comes
  // back is checked: order, sizes, and checksums where asked for.
  absl::StatusOr<ContractOutcome> Contract(const ContractRequest& request,
                                           const CallOptions& options = {},
                                           const ContractCallbacks& callbacks = {});

  // What Contract with this request would cost. Bytes and next_set are not looked at.
  absl::StatusOr<v1::EstimateResponse> Estimate(const ContractRequest& request,
                                                const CallOptions& options = {});

  // Searches for a plan, by the request's `search` (absent: the server's defaults). Neither bytes
  // nor types are needed where the network has the sizes of all indices. `path` and `plan_id` must
  // be absent: a path to start from is search.initial.
  absl::StatusOr<v1::PlanResult> Plan(const ContractRequest& request,
                                      const CallOptions& options = {},
                                      const PlanCallbacks& callbacks = {});

  // Starts a measurement. Refusals by the server come from Next().
  absl::StatusOr<MeasureStream> Measure(MeasureRequest request, const CallOptions& options = {});
  // The same to its end: all answers at once, or each to `on_item`, whose error ends it.
  absl::StatusOr<MeasureOutcome> MeasureAll(
      MeasureRequest request, const CallOptions& options = {},
      const std::function<absl::Status(MeasureItem)>& on_item = nullptr);

  // Runs `call`, a function (Client&, const CallOptions&) -> absl::StatusOr<T>, on one of the
  // client's threads and returns at once. The options that it is given are these, with the time
  // that is left and the canceller of the Pending, and it passes them on. With all threads busy it
  // waits for its turn, in the order in which they came.
  template <typename Call>
  auto Async(Call call, CallOptions options = {}) {
    using Result = std::invoke_result_t<Call&, Client&, const CallOptions&>;
    const auto state = std::make_shared<AsyncState>(options.canceller);
    const auto promise = std::make_shared<std::promise<Result>>();
    options.canceller = &state->canceller;
    Pending<typename Result::value_type> pending(state, promise->get_future());
    RunLater(
        [call = std::move(call), state, promise](Client client, const CallOptions& left) mutable {
          std::optional<Result> result;
          {  // what the call holds goes before anyone hears of its end
            Call mine = std::move(call);
            Client here = std::move(client);
            result.emplace(mine(here, left));
          }
          state->link.reset();
          promise->set_value(*std::move(result));
        },
        std::move(options));
    return pending;
  }
  // Contract, Plan and MeasureAll in the background. Callbacks run on the thread of the call.
  Pending<ContractOutcome> ContractAsync(ContractRequest request, CallOptions options = {},
                                         ContractCallbacks callbacks = {});
  Pending<v1::PlanResult> PlanAsync(ContractRequest request, CallOptions options = {},
                                    PlanCallbacks callbacks = {});
  Pending<MeasureOutcome> MeasureAllAsync(
      MeasureRequest request, CallOptions options = {},
      std::function<absl::Status(MeasureItem)> on_item = nullptr);

  // Uploads an array that stays on the server: a data set of n rows and d columns, or an operand.
  // The same content has the same name, "datasets/{sha256}" or "tensors/{sha256}", so sending it
  // again is no harm.
  absl::StatusOr<v1::CreateDatasetResponse> CreateDataset(const TensorView& array,
                                                          const StoreOptions& store = {},
                                                          const CallOptions& options = {});
  absl::StatusOr<v1::CreateTensorResponse> CreateTensor(const TensorView& array,
                                                        const StoreOptions& store = {},
                                                        const CallOptions& options = {});
  absl::StatusOr<v1::Dataset> GetDataset(const std::string& name, const CallOptions& options = {});
  absl::StatusOr<v1::StoredTensor> GetTensor(const std::string& name,
                                             const CallOptions& options = {});
  // A page, the most recently used first.
  absl::StatusOr<v1::ListDatasetsResponse> ListDatasets(const v1::ListDatasetsRequest& request = {},
                                                        const CallOptions& options = {});
  absl::StatusOr<v1::ListTensorsResponse> ListTensors(const v1::ListTensorsRequest& request = {},
                                                      const CallOptions& options = {});
  // Forgets it; the bytes that became free. IN_USE while a call works on it.
  absl::StatusOr<int64_t> DeleteDataset(const std::string& name, const CallOptions& options = {});
  absl::StatusOr<int64_t> DeleteTensor(const std::string& name, const CallOptions& options = {});

  // Submits a contraction that the server keeps and runs by itself; returns once it is stored. A
  // lost answer is no harm: the same request_id again finds the job that there is.
  absl::StatusOr<v1::SubmitContractionResponse> SubmitJob(const JobRequest& request,
                                                          const CallOptions& options = {});
  // A job by its name, "jobs/{id}".
  absl::StatusOr<v1::Job> GetJob(const std::string& name, const CallOptions& options = {});
  // A page of jobs, the newest first.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request = {},
                                                const CallOptions& options = {});
  // Follows the job to its end and returns it; whether it succeeded stands in it. The timeout of
  // `options` is that of the whole, breaks included.
  absl::StatusOr<v1::Job> WatchJob(const std::string& name, const CallOptions& options = {},
                                   const JobCallbacks& callbacks = {},
                                   const JobWatchOptions& watch = {});
  // The result of a job that has succeeded. A read that breaks goes on where it was, within the
  // timeout of `options`. Every chunk and the whole are checked.
  absl::StatusOr<JobResult> ReadJobResult(const std::string& name, const CallOptions& options = {},
                                          const JobRetry& retry = {});
  // Asks a job to end, and returns it as it is then.
  absl::StatusOr<v1::Job> CancelJob(const std::string& name, const CallOptions& options = {});
  // Forgets a job that has ended; the bytes that became free in the server's store.
  absl::StatusOr<int64_t> DeleteJob(const std::string& name, const CallOptions& options = {});

  // The measures of the server; with an id or alias only that one (UNKNOWN_MEASURE).
  absl::StatusOr<v1::ListMeasuresResponse> ListMeasures(const std::string& id = "",
                                                        const CallOptions& options = {});

  absl::StatusOr<v1::GetServerInfoResponse> GetServerInfo(const CallOptions& options = {});

  // Memory shared with the server, which must be on this host. NOT_IMPLEMENTED when it offers none;
  // else errors as SharedPool::Connect.
  absl::StatusOr<std::shared_ptr<SharedPool>> OpenSharedPool(int64_t size_bytes,
                                                             const CallOptions& options = {});

  // The providers; with a name only that one (UNKNOWN_PROVIDER).
  absl::StatusOr<v1::ListProvidersResponse> ListProviders(const std::string& name = "",
                                                          const CallOptions& options = {});

  // The operator's verbs, for administrators (else PERMISSION_DENIED). What the fields mean stands
  // in admin.proto.
  absl::StatusOr<v1::DrainResponse> Drain(const v1::DrainRequest& request,
                                          const CallOptions& options = {});
  absl::StatusOr<v1::SetLogLevelResponse> SetLogLevel(const v1::SetLogLevelRequest& request,
                                                      const CallOptions& options = {});
  absl::StatusOr<v1::TrimResponse> Trim(const v1::TrimRequest& request,
                                        const CallOptions& options = {});
  // Counts and seconds since the server's start, of methods whose full name begins with the prefix.
  absl::StatusOr<v1::GetStatisticsResponse> GetStatistics(const std::string& method_prefix = "",
                                                          const CallOptions& options = {});

  // Waits until the server answers that it is ready, and returns that answer. When the time is
  // over: the error of the last try, or UNAVAILABLE with the state that the server was in.
  absl::StatusOr<v1::GetServerInfoResponse> WaitUntilReady(absl::Duration time,
                                                           const CallOptions& options = {});

 private:
  struct Impl;
  absl::StatusOr<ContractOutcome> ContractOnce(const ContractRequest& request,
                                               const std::string& request_id,
                                               const CallOptions& options,
                                               const ContractCallbacks& callbacks,
                                               SharedPlacement* placement, bool* whole);
  // Runs `task` on a thread of the client, with a copy of this and what is left of the options'
  // time.
  void RunLater(std::function<void(Client, const CallOptions&)> task, CallOptions options);
  template <typename Request, typename Response, typename Open>
  absl::StatusOr<Response> Store(const TensorView& array, const StoreOptions& store,
                                 const CallOptions& options, Open open);
  absl::Status SubmitOnce(const JobRequest& request, const std::string& request_id,
                          const CallOptions& options, v1::SubmitContractionResponse* response);
  absl::Status ReadOnce(const std::string& name, const CallOptions& options, int64_t offset,
                        const std::function<absl::Status(const v1::ReadResultResponse&)>& add);
  absl::Status WatchOnce(const v1::WatchJobRequest& request, const CallOptions& options,
                         const std::function<void(const v1::WatchJobResponse&)>& add);
  explicit Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_CLIENT_H_
