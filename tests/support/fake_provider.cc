#include "tests/support/fake_provider.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>

#include "backends/core/dtype.h"
#include "backends/core/error.h"
#include "backends/plugin/provider.h"

// The opaque types of the interface, as this provider makes them.
struct tenon_provider {
  tenon::testing::FakeProvider* fake;
};

struct tenon_compiled {
  tenon::testing::FakeProvider* fake;
  const tenon_program* program;
  std::vector<const char*> kernels, refusals;
};

struct tenon_execution {
  tenon_compiled* compiled;
  tenon_host memory;
  tenon_execution_options options;
  void* block = nullptr;
  int64_t block_bytes = 0;
  std::atomic<int64_t> slices{0};
};

namespace tenon::testing {
namespace {

using Entry = FakeProvider::Entry;

// Fakes by number: the C table has no other way to say which one is meant.
std::mutex registry_mutex;
std::map<int64_t, FakeProvider*>& Registry() {
  static auto* fakes = new std::map<int64_t, FakeProvider*>;
  return *fakes;
}

int64_t NextId() {
  static std::atomic<int64_t> next{1};
  return next.fetch_add(1);
}

FakeProvider* FindFake(const char* options) {
  int64_t id = 0;
  std::from_chars(options, options + std::strlen(options), id);
  const std::lock_guard lock(registry_mutex);
  const auto found = Registry().find(id);
  return found == Registry().end() ? nullptr : found->second;
}

bool IsCancelled(const int32_t* cancel) {
  return cancel != nullptr && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0;
}

template <typename Real>
void AddSlices(const FakeProvider& fake, const FakeProvider::Group& group, int64_t elements,
               int reals_per_element, Real* sum) {
  for (int64_t e = 0; e < elements; ++e) {
    for (int part = 0; part < reals_per_element; ++part) sum[e * reals_per_element + part] = 0;
    for (int64_t slice = group.first_slice; slice < group.last_slice; ++slice) {
      sum[e * reals_per_element] += static_cast<Real>(fake.slice_value(group.block, slice, e));
    }
  }
}

void ComputeGroup(const FakeProvider& fake, const tenon_program& program,
                  const FakeProvider::Group& group, void* sum) {
  const auto dtype = static_cast<DType>(program.dtype);
  const int reals = IsComplex(dtype) ? 2 : 1;
  if (dtype == DType::kFloat32 || dtype == DType::kComplex64) {
    AddSlices(fake, group, program.block_elements, reals, static_cast<float*>(sum));
  } else {
    AddSlices(fake, group, program.block_elements, reals, static_cast<double*>(sum));
  }
}

}  // namespace

// The entries of the table.
struct FakeProvider::Access {
  static int32_t Create(const tenon_host*, const char* options, tenon_provider** provider,
                        tenon_status* status) {
    FakeProvider* fake = FindFake(options);
    if (fake == nullptr) {
      return plugin::ToAbiStatus(Error(Reason::kBadParameter, "no such fake").Build(), status);
    }
    const absl::Status entered = fake->Enter(Entry::kCreate, nullptr);
    if (entered.ok() && !fake->gives_nothing.contains(Entry::kCreate)) {
      *provider = new tenon_provider{fake};
      fake->Count(&Live::providers, 1);
    }
    return plugin::ToAbiStatus(entered, status);
  }

  static void Destroy(tenon_provider* provider) {
    provider->fake->Count(&Live::providers, -1);
    delete provider;
  }

  static int32_t Describe(tenon_provider* provider, tenon_provider_info* info,
                          tenon_status* status) {
    const absl::Status entered = provider->fake->Enter(Entry::kDescribe, nullptr);
    if (entered.ok()) *info = provider->fake->info;
    return plugin::ToAbiStatus(entered, status);
  }

  static int32_t WarmUp(tenon_provider* provider, tenon_status* status) {
    return plugin::ToAbiStatus(provider->fake->Enter(Entry::kWarmUp, nullptr), status);
  }

  static int32_t Compile(tenon_provider* provider, const tenon_program* program,
                         const tenon_compile_options*, tenon_compiled** compiled,
                         tenon_status* status) {
    FakeProvider* fake = provider->fake;
    const absl::Status entered = fake->Enter(Entry::kCompile, nullptr);
    if (entered.ok() && !fake->gives_nothing.contains(Entry::kCompile)) {
      const auto steps = static_cast<size_t>(program->n_steps);
      *compiled = new tenon_compiled{fake, program, std::vector<const char*>(steps, "fake"),
                                     std::vector<const char*>(steps, "")};
      fake->Count(&Live::compiled, 1);
    }
    return plugin::ToAbiStatus(entered, status);
  }

  static int32_t CompiledInfo(const tenon_compiled* compiled, tenon_compiled_info* info,
                              tenon_status* status) {
    FakeProvider* fake = compiled->fake;
    const absl::Status entered = fake->Enter(Entry::kCompiledInfo, nullptr);
    if (entered.ok()) {
      *info = fake->compiled_info;
      info->n_steps = compiled->program->n_steps;
      info->kernels = compiled->kernels.data();
      info->refusals = compiled->refusals.data();
      std::memcpy(info->fingerprint, compiled->program->fingerprint, sizeof(info->fingerprint));
      if (fake->edit_compiled_info) fake->edit_compiled_info(info);
    }
    return plugin::ToAbiStatus(entered, status);
  }

  static void ReleaseCompiled(tenon_compiled* compiled) {
    compiled->fake->Count(&Live::compiled, -1);
    delete compiled;
  }

  static int32_t Begin(tenon_compiled* compiled, const tenon_host* memory, const void* const*,
                       const tenon_execution_options* options, tenon_execution** execution,
                       tenon_status* status) {
    FakeProvider* fake = compiled->fake;
    const absl::Status entered = fake->Enter(Entry::kBegin, options->cancel);
    if (!entered.ok() || fake->gives_nothing.contains(Entry::kBegin)) {
      return plugin::ToAbiStatus(entered, status);
    }
    const tenon_program& program = *compiled->program;
    const int64_t elements = program.constant_elements + program.set_elements +
                             options->workers * program.arena_elements;
    const int64_t bytes = elements * DTypeSize(static_cast<DType>(program.dtype)) +
                          fake->compiled_info.shared_bytes +
                          options->workers * fake->compiled_info.worker_bytes + fake->extra_bytes;
    void* block = memory->allocate(memory->context, bytes, 64);
    if (block == nullptr) {
      return plugin::ToAbiStatus(
          Error(Reason::kExceedsMemoryBudget, StrCat("refused ", bytes, " bytes")).Build(), status);
    }
    *execution = new tenon_execution{compiled, *memory, *options, block, bytes};
    fake->Count(&Live::executions, 1);
    return plugin::ToAbiStatus(absl::OkStatus(), status);
  }

  static int32_t BindSet(tenon_execution* execution, const void* const*, tenon_status* status) {
    return plugin::ToAbiStatus(
        execution->compiled->fake->Enter(Entry::kBindSet, execution->options.cancel), status);
  }

  static int32_t RunGroup(tenon_execution* execution, int32_t worker, int64_t block,
                          int64_t first_slice, int64_t last_slice, void* partial_sum,
                          tenon_status* status) {
    FakeProvider* fake = execution->compiled->fake;
    const absl::Status entered = fake->Enter(Entry::kRunGroup, execution->options.cancel);
    if (entered.ok()) {
      const Group group{worker, block, first_slice, last_slice};
      ComputeGroup(*fake, *execution->compiled->program, group, partial_sum);
      execution->slices += last_slice - first_slice;
      const std::lock_guard lock(fake->mutex_);
      fake->groups_.push_back(group);
    }
    return plugin::ToAbiStatus(entered, status);
  }

  static int32_t RunScaledGroup(tenon_execution* execution, int32_t worker, int64_t block,
                                int64_t first_slice, int64_t last_slice, void* partial_sum,
                                int64_t* exponent, tenon_status* status) {
    *exponent = execution->compiled->fake->group_exponent_(block, first_slice);
    return RunGroup(execution, worker, block, first_slice, last_slice, partial_sum, status);
  }

  static int32_t Statistics(const tenon_execution* execution, tenon_run_statistics* statistics,
                            tenon_status* status) {
    const absl::Status entered = execution->compiled->fake->Enter(Entry::kStatistics, nullptr);
    if (entered.ok()) {
      statistics->timing_scope = 3;
      statistics->slices = execution->slices.load();
      statistics->flops = static_cast<double>(statistics->slices) *
                          static_cast<double>(execution->compiled->program->block_elements);
      statistics->execution_seconds = -1;
    }
    return plugin::ToAbiStatus(entered, status);
  }

  static void End(tenon_execution* execution) {
    const tenon_host& memory = execution->memory;
    memory.release(memory.context, execution->block, execution->block_bytes);
    execution->compiled->fake->Count(&Live::executions, -1);
    delete execution;
  }

  static int32_t WorkingMemory(tenon_provider* provider, const tenon_resource_request*, int64_t,
                               int64_t* bytes, tenon_status* status) {
    const absl::Status entered = provider->fake->Enter(Entry::kWorkingMemory, nullptr);
    if (entered.ok()) *bytes = provider->fake->working_memory_bytes;
    return plugin::ToAbiStatus(entered, status);
  }

  static int32_t BuildResources(tenon_provider* provider, const tenon_resource_request* request,
                                tenon_resource_statistics* statistics, tenon_status* status) {
    absl::Status result = provider->fake->Enter(Entry::kBuildResources, request->cancel);
    if (result.ok()) result = provider->fake->build(*request);
    if (result.ok()) {
      statistics->timing_scope = 3;
      statistics->execution_seconds = -1;
    }
    return plugin::ToAbiStatus(result, status);
  }
};

FakeProvider::FakeProvider(std::string name)
    : table{}, info{}, compiled_info{}, id_(NextId()), name_(std::move(name)) {
  table.struct_size = sizeof(table);
  table.abi_version = TENON_ABI_VERSION;
  table.create = Access::Create;
  table.destroy = Access::Destroy;
  table.describe = Access::Describe;
  table.warm_up = Access::WarmUp;
  table.compile = Access::Compile;
  table.compiled_info = Access::CompiledInfo;
  table.release_compiled = Access::ReleaseCompiled;
  table.begin = Access::Begin;
  table.bind_set = Access::BindSet;
  table.run_group = Access::RunGroup;
  table.execution_statistics = Access::Statistics;
  table.end = Access::End;
  table.working_memory = Access::WorkingMemory;
  table.build_resources = Access::BuildResources;
  info.struct_size = sizeof(info);
  info.exact = 1;
  info.name = name_.c_str();
  info.kind = "fake";
  info.description = "scripted by a test";
  info.isa = "";
  info.max_workers = 4;
  info.contraction_dtypes = 1u << TENON_DTYPE_FLOAT32 | 1u << TENON_DTYPE_FLOAT64 |
                            1u << TENON_DTYPE_COMPLEX64 | 1u << TENON_DTYPE_COMPLEX128;
  info.step_kinds = 1u << TENON_STEP_CONTRACT | 1u << TENON_STEP_UNARY;
  for (int kind = TENON_RESOURCE_KNN; kind <= TENON_RESOURCE_RANK_TABLE; ++kind) {
    info.resource_kinds |= 1u << kind;
  }
  info.resource_dtypes = 1u << TENON_DTYPE_FLOAT32 | 1u << TENON_DTYPE_FLOAT64;
  compiled_info.struct_size = sizeof(compiled_info);
  compiled_info.predicted_slice_seconds = -1;
  const std::lock_guard lock(registry_mutex);
  Registry()[id_] = this;
}

FakeProvider::~FakeProvider() {
  const std::lock_guard lock(registry_mutex);
  Registry().erase(id_);
}

std::string FakeProvider::options() const { return std::to_string(id_); }

double FakeProvider::SliceValue(int64_t block, int64_t slice, int64_t element) {
  return static_cast<double>(1 + slice + 100 * block + 10 * (element % 10));
}

absl::Status FakeProvider::FillWithKind(const tenon_resource_request& request) {
  for (int32_t i = 0; i < request.n_outputs; ++i) {
    const tenon_resource& output = request.outputs[i];
    std::memset(output.data, output.key.kind, static_cast<size_t>(output.bytes));
  }
  return absl::OkStatus();
}

void FakeProvider::FailNth(Entry entry, int n, absl::Status error) {
  const std::lock_guard lock(mutex_);
  failures_[{entry, n == 0 ? 0 : calls_[entry] + n}] = std::move(error);
}

void FakeProvider::FailFrom(Entry entry, int n, absl::Status error) {
  const std::lock_guard lock(mutex_);
  deaths_[entry] = {calls_[entry] + n, std::move(error)};
}

void FakeProvider::SetNormalizes(
    std::function<int64_t(int64_t block, int64_t slice)> group_exponent) {
  group_exponent_ = std::move(group_exponent);
  table.run_scaled_group = Access::RunScaledGroup;
}

void FakeProvider::StallNth(Entry entry, int n) {
  const std::lock_guard lock(mutex_);
  stalls_.insert({entry, calls_[entry] + n});
}

void FakeProvider::WaitUntilStalled() {
  std::unique_lock lock(mutex_);
  stalled_changed_.wait(lock, [this] { return stalled_ > 0; });
}

int FakeProvider::calls(Entry entry) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(entry);
  return found == calls_.end() ? 0 : found->second;
}

std::vector<FakeProvider::Group> FakeProvider::groups() const {
  const std::lock_guard lock(mutex_);
  return groups_;
}

FakeProvider::Live FakeProvider::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

void FakeProvider::Count(int Live::*kind, int change) {
  const std::lock_guard lock(mutex_);
  live_.*kind += change;
}

absl::Status FakeProvider::Enter(Entry entry, const int32_t* cancel) {
  std::unique_lock lock(mutex_);
  const int call = ++calls_[entry];
  for (const int key : {call, 0}) {
    const auto failure = failures_.find({entry, key});
    if (failure != failures_.end()) return failure->second;
  }
  const auto death = deaths_.find(entry);
  if (death != deaths_.end() && call >= death->second.first) return death->second.second;
  const bool stalls = stalls_.contains({entry, call});
  if (stalls) {
    ++stalled_;
    stalled_changed_.notify_all();
  }
  lock.unlock();
  // The interface has no way to be woken by a cancellation; a real provider polls as well.
  while (stalls && !IsCancelled(cancel)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (stalls) {
    lock.lock();
    --stalled_;
  }
  if (IsCancelled(cancel)) return Error(Reason::kClientCancelled, "cancelled").Build();
  return absl::OkStatus();
}

}  // namespace tenon::testing
