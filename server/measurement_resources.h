// What the engine tells about resources, as the contract has it.

#ifndef TENON_SERVER_MEASUREMENT_RESOURCES_H_
#define TENON_SERVER_MEASUREMENT_RESOURCES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backends/core/dtype.h"
#include "backends/measurement/original_side.h"
#include "backends/measurement/registry.h"
#include "backends/measurement/session.h"
#include "tenon/v1/measure_report.pb.h"

namespace tenon::server {

using EngineResource = measurement::RunInfo::Resource;

// What is the same for all resources of a call.
struct ResourceContext {
  std::string requested;  // provider
  DType compute_dtype = DType::kFloat64;
  bool geodesic = false;
  bool planned = false;  // nothing was built yet
  int64_t rows = 0;
  const std::vector<measurement::MeasureSpec>* specs = nullptr;
};

void WriteResources(const std::vector<EngineResource>& resources, const ResourceContext& context,
                    google::protobuf::RepeatedPtrField<v1::ResourceReport>* out);
v1::ProviderChoice ChoiceOf(const EngineResource& resource, const std::string& requested);

// A resource that is kept with a data set.
void WriteKept(const measurement::OriginalSide::Kept& kept, v1::ResourceReport* out);

// Equal but for what happened to them.
bool SameResource(const EngineResource& a, const EngineResource& b);

// How distances of pairs are had for these resources; unspecified without any over pairs.
v1::PairStrategy PairStrategyOf(const std::vector<EngineResource>& resources);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_RESOURCES_H_
