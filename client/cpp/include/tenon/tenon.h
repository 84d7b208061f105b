// The C++ client of Tenon: everything, by one #include. Read this first; it takes ten minutes.
//
//   find_package(tenon CONFIG REQUIRED)
//   target_link_libraries(my_program PRIVATE tenon::client)
//
// 1. CONNECT. A Client is a handle on a connection, cheap to copy, and thread-safe: any number of
//    calls may run at once, from any threads. Nothing is connected before the first call.
//
//      namespace tc = tenon::client;
//      auto client = tc::Client::Connect("127.0.0.1:50551");      // or "unix:/run/tenon.sock"
//      if (!client.ok()) return client.status();
//
//    ClientOptions has certificates, a token, the default deadline (an hour) and retries.
//
// 2. CONTRACT. Operands are tenon::Tensor (owning, aligned) or tc::TensorView (your own memory: an
//    element type, a shape, and bytes in C order, read in place and never copied).
//
//      std::vector<double> a(6, 1.0), b(12, 2.0);
//      tc::ContractRequest request;
//      request.einsum = "ab,bc->ac";
//      request.operands = {
//          tc::TensorView({tenon::DType::kFloat64, {2, 3}}, std::as_bytes(std::span(a))),
//          tc::TensorView({tenon::DType::kFloat64, {3, 4}}, std::as_bytes(std::span(b)))};
//      auto outcome = client->Contract(request);
//      if (!outcome.ok()) return outcome.status();
//      const double* c = outcome->results[0].tensor.buffer.as<double>();  // [2, 4]
//
//    Large operands go in chunks while the answer is awaited. `execution` and `result` are messages
//    of proto/tenon/v1/contraction.proto, where every field is explained. `next_set` sends many
//    values of the same operands through one call; `callbacks` tell progress and take results as
//    they come.
//
// 3. PLAN. The server searches for a path by itself. To see it, to spend longer on it, or to use it
//    again:
//
//      request.search.emplace().set_max_time_seconds(10);
//      auto plan = client->Plan(request);               // client->Estimate(request): costs alone
//      request.search.reset();
//      request.plan_id = plan->plan().plan_id();
//      outcome = client->Contract(request);
//
// 4. MEASURE a stream of projections of one data set; answers come in order, each as soon as it is
//    there.
//
//      tc::MeasureRequest measure;
//      measure.specs = {*tc::ParseMeasureSpec("tnc:k=20"), *tc::ParseMeasureSpec("stress")};
//      measure.dataset = hd;                            // n rows, d columns
//      measure.next_projection = [&](tc::ProjectionInput* next) -> absl::StatusOr<bool> {
//        if (i == projections.size()) return false;
//        next->tensor = projections[i++];
//        return true;
//      };
//      auto stream = client->Measure(std::move(measure));
//      while (true) {
//        auto item = stream->Next();                    // an error ends the whole stream
//        if (!item.ok()) return item.status();
//        if (!item->has_value()) break;                 // stream->summary() is there
//        if (!(*item)->status.ok()) continue;           // of this projection only
//        Use((*item)->scores.specs(0).values().at("trustworthiness"));
//      }
//
//    client->MeasureAll(measure) collects the answers instead.
//
// 5. STORE what is used again: client->CreateDataset(hd) and client->CreateTensor(a) give names,
//    "datasets/..." and "tensors/...", for measure.dataset_handle and Operand::handle.
//
// 6. JOBS outlive the connection and the server's process:
//
//      auto job = client->SubmitJob({.contraction = request});
//      auto done = client->WatchJob(job->job().name());       // reconnects by itself
//      if (done->state() == tenon::v1::JOB_STATE_SUCCEEDED) {
//        auto result = client->ReadJobResult(done->name());
//      }
//
// 7. IN THE BACKGROUND. ContractAsync, PlanAsync and MeasureAllAsync give a Pending, which holds a
//    std::future; Async does so for any other call. They run on ClientOptions::async_threads
//    threads of the client at most (16; made when needed, and further calls wait their turn).
//
//      auto pending = client->ContractAsync(request);   // what the views show must stay
//      auto other = client->Async([](tc::Client& client, const tc::CallOptions& options) {
//        return client.GetServerInfo(options);
//      });
//      pending.Cancel();                                // ends it, on the server too
//      auto outcome = pending.Get();                    // waits
//
// 8. CANCEL. Give one tc::Canceller to any number of calls; Cancel() on it, from any thread, ends
//    all of them, and later ones, with CANCELLED. CallOptions::timeout is a deadline.
//
//      tc::Canceller canceller;
//      client->Contract(request, {.timeout = absl::Seconds(5), .canceller = &canceller});
//
// 9. ERRORS are absl::Status; nothing throws. Where the server spoke, tc::ServerErrorOf(status) has
//    its stable reason ("SHAPE_MISMATCH", all in proto/tenon/v1/errors.proto), the fields of the
//    request at fault, and figures. tc::IsUnreachable(status): nobody answered.
//
// 10. RETRIES. Every call has a request_id, yours or one that is drawn. Where the server says that
//    it is full, starts or shuts down, or a connection breaks that worked before, the same call is
//    sent again, after the pause that the server asks for, for 10 seconds, as long as its input is
//    still there and nothing has been handed out to you. ClientOptions::retry and
//    CallOptions::retry set it; a patience of zero switches it off.
//
// Memory shared with a server on this host: tenon/shared_memory.h. Administration: client.h.

#ifndef TENON_CLIENT_CPP_INCLUDE_TENON_TENON_H_
#define TENON_CLIENT_CPP_INCLUDE_TENON_TENON_H_

#include "tenon/async.h"          // IWYU pragma: export
#include "tenon/call.h"           // IWYU pragma: export
#include "tenon/client.h"         // IWYU pragma: export
#include "tenon/contract.h"       // IWYU pragma: export
#include "tenon/job.h"            // IWYU pragma: export
#include "tenon/measure.h"        // IWYU pragma: export
#include "tenon/measure_spec.h"   // IWYU pragma: export
#include "tenon/shared_memory.h"  // IWYU pragma: export
#include "tenon/store.h"          // IWYU pragma: export
#include "tenon/tensor_view.h"    // IWYU pragma: export

#endif  // TENON_CLIENT_CPP_INCLUDE_TENON_TENON_H_
