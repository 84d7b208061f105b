// What the copies of a Client share.

#ifndef TENON_CLIENT_CPP_CLIENT_IMPL_H_
#define TENON_CLIENT_CPP_CLIENT_IMPL_H_

#include <memory>

#include "client/cpp/status.h"
#include "tenon/client.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"

namespace tenon::client {

struct Client::Impl {
  Endpoint endpoint;
  ClientOptions options;
  std::unique_ptr<v1::ContractionService::Stub> contraction;
  std::unique_ptr<v1::JobService::Stub> job;
  std::unique_ptr<v1::MeasurementService::Stub> measurement;
  std::unique_ptr<v1::ProviderService::Stub> provider;
  std::unique_ptr<v1::AdminService::Stub> admin;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_CLIENT_IMPL_H_
