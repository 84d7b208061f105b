// The calls of JobService that answer in many frames.

#ifndef TENON_SERVER_JOB_STREAMS_H_
#define TENON_SERVER_JOB_STREAMS_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "server/state.h"
#include "tenon/v1/job.pb.h"

namespace tenon::server {

// state->jobs is not null. The calls delete themselves. What they read of the store they read in
// `state->listing`, whose tasks may wait for disks.
grpc::ServerWriteReactor<v1::WatchJobResponse>* StartWatchJob(grpc::CallbackServerContext* context,
                                                              ServerState* state,
                                                              const std::string& owner,
                                                              const v1::WatchJobRequest& request);
grpc::ServerWriteReactor<v1::ReadResultResponse>* StartReadResult(
    grpc::CallbackServerContext* context, ServerState* state, const std::string& owner,
    const v1::ReadResultRequest& request);

}  // namespace tenon::server

#endif  // TENON_SERVER_JOB_STREAMS_H_
