#include "backends/plugin/provider.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <thread>

#include "backends/core/error.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::plugin {
namespace {

using tenon::testing::Fails;
using tenon::testing::FakeProvider;
using Entry = FakeProvider::Entry;

// A program for a provider that looks only at its sizes: two blocks of three elements, four slices
// each, two operands.
class ProviderTest : public ::testing::Test {
 protected:
  ProviderTest() {
    program_.struct_size = sizeof(program_);
    program_.dtype = TENON_DTYPE_FLOAT64;
    program_.n_operands = 2;
    program_.n_steps = 2;
    program_.constant_elements = 10;
    program_.set_elements = 20;
    program_.arena_elements = 30;
    program_.block_elements = 3;
    program_.n_blocks = 2;
    program_.slices_per_block = 4;
    for (int i = 0; i < 32; ++i) program_.fingerprint[i] = static_cast<uint8_t>(i * 8 + 7);
    compile_options_.struct_size = sizeof(compile_options_);
    compile_options_.threads = 1;
    execution_options_.struct_size = sizeof(execution_options_);
    execution_options_.workers = 2;
    execution_options_.threads_per_worker = 1;
  }

  absl::StatusOr<std::shared_ptr<Provider>> Create() {
    return Provider::Create(fake_.api(), fake_.options());
  }

  // What the program and its options ask of `begin`, by the description in abi.h.
  int64_t ExpectedBytes() const {
    return 8 * (program_.constant_elements + program_.set_elements +
                execution_options_.workers * program_.arena_elements);
  }

  FakeProvider fake_{"fake:0"};
  tenon_program program_{};
  tenon_compile_options compile_options_{};
  tenon_execution_options execution_options_{};
  const std::vector<const void*> operands_ = {nullptr, nullptr};
};

TEST_F(ProviderTest, AnHonestProviderIsDescribedAndGivenBack) {
  fake_.info.kind = nullptr;
  fake_.info.isa = nullptr;
  auto provider = Create();
  ASSERT_TRUE(provider.ok()) << provider.status();
  EXPECT_EQ((*provider)->name(), "fake:0");
  EXPECT_STREQ((*provider)->info().kind, "");
  EXPECT_STREQ((*provider)->info().isa, "");
  EXPECT_EQ((*provider)->info().max_workers, 4);
  EXPECT_EQ(fake_.live().providers, 1);
  provider->reset();
  EXPECT_EQ(fake_.live(), FakeProvider::Live());
}

TEST_F(ProviderTest, NoTable) {
  EXPECT_TRUE(Fails(Provider::Create(nullptr, ""), Reason::kBadParameter, "api"));
}

TEST_F(ProviderTest, AnotherVersionIsRefusedNamingBoth) {
  // Whatever else is wrong with the table, the version is what its owner must hear about.
  for (const uint32_t size : {static_cast<uint32_t>(sizeof(tenon_provider_api)), 8u, 100000u}) {
    fake_.table.struct_size = size;
    fake_.table.abi_version = TENON_ABI_VERSION + 1;
    const auto provider = Create();
    EXPECT_TRUE(Fails(provider, Reason::kUnsupportedByProvider, "api.abi_version"));
    const auto metadata = GetErrorDetails(provider.status()).metadata;
    EXPECT_EQ(metadata.at("provider_abi_version"), std::to_string(TENON_ABI_VERSION + 1));
    EXPECT_EQ(metadata.at("host_abi_version"), std::to_string(TENON_ABI_VERSION));
  }
  EXPECT_EQ(fake_.calls(Entry::kCreate), 0);
}

TEST_F(ProviderTest, AShortTableIsRefused) {
  const auto needed = static_cast<uint32_t>(offsetof(tenon_provider_api, can_batch));
  for (const uint32_t size : {0u, 7u, 8u, needed - 1}) {
    fake_.table.struct_size = size;
    EXPECT_TRUE(Fails(Create(), Reason::kBadParameter, "api.struct_size")) << size;
  }
  EXPECT_EQ(fake_.calls(Entry::kCreate), 0);
  for (const uint32_t size : {needed, static_cast<uint32_t>(sizeof(fake_.table)), 100000u}) {
    fake_.table.struct_size = size;
    EXPECT_TRUE(Create().ok()) << size;
  }
}

TEST_F(ProviderTest, EveryMandatoryEntryMustBeThere) {
  const auto expect_refusal = [this](auto& entry, const char* field) {
    const auto saved = std::exchange(entry, nullptr);
    EXPECT_TRUE(Fails(Create(), Reason::kBadParameter, field));
    entry = saved;
  };
  expect_refusal(fake_.table.create, "api.create");
  expect_refusal(fake_.table.destroy, "api.destroy");
  expect_refusal(fake_.table.describe, "api.describe");
  expect_refusal(fake_.table.warm_up, "api.warm_up");
  expect_refusal(fake_.table.compile, "api.compile");
  expect_refusal(fake_.table.compiled_info, "api.compiled_info");
  expect_refusal(fake_.table.release_compiled, "api.release_compiled");
  expect_refusal(fake_.table.begin, "api.begin");
  expect_refusal(fake_.table.bind_set, "api.bind_set");
  expect_refusal(fake_.table.run_group, "api.run_group");
  expect_refusal(fake_.table.execution_statistics, "api.execution_statistics");
  expect_refusal(fake_.table.end, "api.end");
  expect_refusal(fake_.table.working_memory, "api.working_memory");
  expect_refusal(fake_.table.build_resources, "api.build_resources");
  EXPECT_EQ(fake_.calls(Entry::kCreate), 0);
  EXPECT_TRUE(Create().ok());
}

TEST_F(ProviderTest, LiesInTheDescriptionAreRefused) {
  fake_.info.exact = 0;
  EXPECT_TRUE(Fails(Create(), Reason::kUnsupportedByProvider, "info.exact"));
  fake_.info.exact = 2;
  EXPECT_TRUE(Fails(Create(), Reason::kUnsupportedByProvider, "info.exact"));
  fake_.info.exact = 1;
  fake_.info.max_workers = 0;
  EXPECT_TRUE(Fails(Create(), Reason::kBadParameter, "info.max_workers"));
  fake_.info.max_workers = 1;
  fake_.info.memory_bytes = -1;
  EXPECT_TRUE(Fails(Create(), Reason::kBadParameter, "info.memory_bytes"));
  fake_.info.memory_bytes = 0;
  for (const char* name : {"", static_cast<const char*>(nullptr)}) {
    fake_.info.name = name;
    EXPECT_TRUE(Fails(Create(), Reason::kBadParameter, "info.name"));
  }
  EXPECT_EQ(fake_.live().providers, 0);  // the refused ones were destroyed
}

TEST_F(ProviderTest, FailuresOfCreationComeThrough) {
  fake_.FailNth(Entry::kCreate, 1, Error(Reason::kNoDevice, "unplugged"));
  const auto provider = Create();
  EXPECT_TRUE(Fails(provider, Reason::kNoDevice));
  EXPECT_EQ(provider.status().message(), "unplugged");
  fake_.FailNth(Entry::kDescribe, 1, Error(Reason::kDeviceFault, "x"));
  EXPECT_TRUE(Fails(Create(), Reason::kDeviceFault));
  EXPECT_EQ(fake_.live().providers, 0);
  fake_.gives_nothing = {Entry::kCreate};
  EXPECT_TRUE(Fails(Create(), Reason::kInternal));
  EXPECT_TRUE(Fails(Provider::Create(fake_.api(), "no fake"), Reason::kBadParameter));
}

TEST_F(ProviderTest, WarmUpHappensOnce) {
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  EXPECT_EQ((*provider)->info().cold_seconds, 0);
  fake_.FailNth(Entry::kWarmUp, 1, Error(Reason::kDeviceFault, "x"));
  EXPECT_TRUE(Fails((*provider)->WarmUp(), Reason::kDeviceFault));
  EXPECT_FALSE((*provider)->warm());
  fake_.info.cold_seconds = 1.5;
  fake_.info.name = "renamed";
  ASSERT_TRUE((*provider)->WarmUp().ok());
  EXPECT_TRUE((*provider)->warm());
  EXPECT_EQ((*provider)->info().cold_seconds, 1.5);
  EXPECT_EQ((*provider)->name(), "fake:0");  // a name does not change under its users
  ASSERT_TRUE((*provider)->WarmUp().ok());
  EXPECT_EQ(fake_.calls(Entry::kWarmUp), 2);
}

TEST_F(ProviderTest, WhatItCanDo) {
  fake_.info.contraction_dtypes = 1u << TENON_DTYPE_FLOAT32;
  fake_.info.resource_kinds = 1u << TENON_RESOURCE_KNN;
  const auto provider = Create();
  ASSERT_TRUE(provider.ok());
  EXPECT_TRUE((*provider)->CanContract(TENON_DTYPE_FLOAT32));
  EXPECT_FALSE((*provider)->CanContract(TENON_DTYPE_FLOAT64));
  EXPECT_FALSE((*provider)->CanContract(-1));
  EXPECT_FALSE((*provider)->CanContract(TENON_DTYPE_FLOAT32 + 32));
  EXPECT_TRUE((*provider)->CanBuild(TENON_RESOURCE_KNN));
  EXPECT_FALSE((*provider)->CanBuild(TENON_RESOURCE_DENSITY));
  fake_.info.step_kinds = 0;
  EXPECT_FALSE((*Create())->CanContract(TENON_DTYPE_FLOAT32));
}

TEST_F(ProviderTest, AContractionFromCompileToEnd) {
  fake_.compiled_info.worker_bytes = 100;
  fake_.compiled_info.shared_bytes = 1000;
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok()) << compiled.status();
  EXPECT_EQ((*compiled)->info().n_steps, 2);
  EXPECT_STREQ((*compiled)->info().kernels[1], "fake");
  EXPECT_EQ((*compiled)->FingerprintHex(),
            "070f171f272f373f474f575f676f777f878f979fa7afb7bfc7cfd7dfe7eff7ff");
  HostMemory memory(1 << 20);
  auto execution = (*compiled)->Begin(memory, operands_, execution_options_);
  ASSERT_TRUE(execution.ok()) << execution.status();
  EXPECT_EQ(memory.current_bytes(), ExpectedBytes() + 1000 + 2 * 100);
  ASSERT_TRUE((*execution)->BindSet(operands_).ok());
  double sum[3] = {-1, -1, -1};
  ASSERT_TRUE((*execution)->RunGroup(1, 1, 1, 3, sum).ok());
  for (int e = 0; e < 3; ++e) {
    EXPECT_EQ(sum[e], FakeProvider::SliceValue(1, 1, e) + FakeProvider::SliceValue(1, 2, e));
  }
  EXPECT_EQ(fake_.groups(), (std::vector<FakeProvider::Group>{{1, 1, 1, 3}}));
  const auto statistics = (*execution)->Statistics();
  ASSERT_TRUE(statistics.ok());
  EXPECT_EQ(statistics->slices, 2);
  EXPECT_EQ(statistics->struct_size, sizeof(*statistics));
  execution->reset();
  EXPECT_EQ(memory.current_bytes(), 0);
  compiled->reset();
  provider->reset();
  EXPECT_EQ(fake_.live(), FakeProvider::Live());
}

TEST_F(ProviderTest, FailuresOfAContractionComeThroughAndLeakNothing) {
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  const Error error = Error(Reason::kUnsupportedByProvider, "step 1 is too wide");
  for (const Entry entry : {Entry::kCompile, Entry::kCompiledInfo}) {
    fake_.FailNth(entry, 1, error);
    EXPECT_TRUE(
        Fails((*provider)->Compile(program_, compile_options_), Reason::kUnsupportedByProvider));
    EXPECT_EQ(fake_.live().compiled, 0);
  }
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok());
  HostMemory memory(1 << 20);
  fake_.FailNth(Entry::kBegin, 1, Error(Reason::kDeviceMemory, "x"));
  EXPECT_TRUE(
      Fails((*compiled)->Begin(memory, operands_, execution_options_), Reason::kDeviceMemory));
  auto execution = (*compiled)->Begin(memory, operands_, execution_options_);
  ASSERT_TRUE(execution.ok());
  fake_.FailNth(Entry::kBindSet, 1, Error(Reason::kInternal, "x"));
  EXPECT_TRUE(Fails((*execution)->BindSet(operands_), Reason::kInternal));
  fake_.FailNth(Entry::kRunGroup, 2, Error(Reason::kInternal, "second"));
  double sum[3];
  EXPECT_TRUE((*execution)->RunGroup(0, 0, 0, 1, sum).ok());
  EXPECT_TRUE(Fails((*execution)->RunGroup(0, 0, 1, 2, sum), Reason::kInternal));
  EXPECT_TRUE((*execution)->RunGroup(0, 0, 1, 2, sum).ok());
  EXPECT_EQ(fake_.groups().size(), 2u);
  fake_.FailNth(Entry::kStatistics, 0, Error(Reason::kInternal, "x"));
  EXPECT_TRUE(Fails((*execution)->Statistics(), Reason::kInternal));
  EXPECT_TRUE(Fails((*execution)->Statistics(), Reason::kInternal));
}

TEST_F(ProviderTest, SuccessWithoutAResultIsAnError) {
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  fake_.gives_nothing = {Entry::kCompile};
  EXPECT_TRUE(Fails((*provider)->Compile(program_, compile_options_), Reason::kInternal));
  fake_.gives_nothing = {Entry::kBegin};
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok());
  HostMemory memory(1 << 20);
  EXPECT_TRUE(Fails((*compiled)->Begin(memory, operands_, execution_options_), Reason::kInternal));
  EXPECT_EQ(fake_.live().executions, 0);
}

TEST_F(ProviderTest, LiesAboutTheCompiledProgramAreRefused) {
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  const std::function<void(tenon_compiled_info*)> lies[] = {
      [](tenon_compiled_info* info) { info->n_steps = 3; },
      [](tenon_compiled_info* info) { info->kernels = nullptr; },
      [](tenon_compiled_info* info) { info->refusals = nullptr; },
      [](tenon_compiled_info* info) { info->worker_bytes = -1; },
      [](tenon_compiled_info* info) { info->shared_bytes = -1; },
  };
  for (const auto& lie : lies) {
    fake_.edit_compiled_info = lie;
    EXPECT_TRUE(Fails((*provider)->Compile(program_, compile_options_), Reason::kInternal));
    EXPECT_EQ(fake_.live().compiled, 0);
  }
}

TEST_F(ProviderTest, RefusedMemoryFailsBegin) {
  auto provider = Create();
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok());
  HostMemory memory(ExpectedBytes());
  fake_.extra_bytes = 1;
  EXPECT_TRUE(Fails((*compiled)->Begin(memory, operands_, execution_options_),
                    Reason::kExceedsMemoryBudget));
  EXPECT_EQ(memory.current_bytes(), 0);
  fake_.extra_bytes = 0;
  EXPECT_TRUE((*compiled)->Begin(memory, operands_, execution_options_).ok());
}

TEST_F(ProviderTest, WrongCallsNeverReachTheProvider) {
  auto provider = Create();
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok());
  HostMemory memory(1 << 20);
  const auto bad = Reason::kBadParameter;
  EXPECT_TRUE(Fails((*compiled)->Begin(memory, {nullptr}, execution_options_), bad, "operands"));
  tenon_execution_options options = execution_options_;
  options.workers = 0;
  EXPECT_TRUE(Fails((*compiled)->Begin(memory, operands_, options), bad, "options.workers"));
  options = execution_options_;
  options.threads_per_worker = 0;
  EXPECT_TRUE(
      Fails((*compiled)->Begin(memory, operands_, options), bad, "options.threads_per_worker"));
  EXPECT_EQ(fake_.calls(Entry::kBegin), 0);
  auto execution = (*compiled)->Begin(memory, operands_, execution_options_);
  ASSERT_TRUE(execution.ok());
  EXPECT_TRUE(Fails((*execution)->BindSet({}), bad, "operands"));
  double sum[3];
  for (const auto& [worker, block, first, last] : std::vector<std::array<int, 4>>{{-1, 0, 0, 1},
                                                                                  {2, 0, 0, 1},
                                                                                  {0, -1, 0, 1},
                                                                                  {0, 2, 0, 1},
                                                                                  {0, 0, -1, 1},
                                                                                  {0, 0, 2, 2},
                                                                                  {0, 0, 3, 2},
                                                                                  {0, 0, 0, 5}}) {
    EXPECT_TRUE(Fails((*execution)->RunGroup(worker, block, first, last, sum), bad, "group"));
  }
  EXPECT_EQ(fake_.calls(Entry::kBindSet), 0);
  EXPECT_EQ(fake_.calls(Entry::kRunGroup), 0);
}

TEST_F(ProviderTest, AStalledGroupEndsWhenCancelled) {
  auto provider = Create();
  auto compiled = (*provider)->Compile(program_, compile_options_);
  ASSERT_TRUE(compiled.ok());
  HostMemory memory(1 << 20);
  CancelToken cancel;
  execution_options_.cancel = reinterpret_cast<const int32_t*>(cancel.flag());
  auto execution = (*compiled)->Begin(memory, operands_, execution_options_);
  ASSERT_TRUE(execution.ok());
  fake_.StallNth(Entry::kRunGroup, 1);
  absl::Status result;
  std::thread worker([&] {
    double sum[3];
    result = (*execution)->RunGroup(0, 0, 0, 1, sum);
  });
  fake_.WaitUntilStalled();
  cancel.Cancel();
  worker.join();
  EXPECT_TRUE(Fails(result, Reason::kClientCancelled));
  EXPECT_TRUE(fake_.groups().empty());
}

TEST_F(ProviderTest, ResourcesAreBuiltAndFailuresComeThrough) {
  auto provider = Create();
  ASSERT_TRUE(provider.ok());
  uint8_t bytes[2][4] = {};
  const tenon_resource outputs[] = {
      {{TENON_RESOURCE_KNN, TENON_RESOURCE_ORIGINAL, 3, 0}, bytes[0], 4},
      {{TENON_RESOURCE_DENSITY, TENON_RESOURCE_EMBEDDED, 0, 0.1}, bytes[1], 4}};
  tenon_resource_request request{};
  request.struct_size = sizeof(request);
  request.n_outputs = 2;
  request.outputs = outputs;
  fake_.working_memory_bytes = 123;
  const auto working = (*provider)->WorkingMemory(request, 1000);
  ASSERT_TRUE(working.ok());
  EXPECT_EQ(*working, 123);
  const auto statistics = (*provider)->BuildResources(request);
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  EXPECT_EQ(statistics->struct_size, sizeof(*statistics));
  EXPECT_EQ(bytes[0][3], TENON_RESOURCE_KNN);
  EXPECT_EQ(bytes[1][0], TENON_RESOURCE_DENSITY);

  fake_.working_memory_bytes = -1;
  EXPECT_TRUE(Fails((*provider)->WorkingMemory(request, 1000), Reason::kInternal));
  fake_.FailNth(Entry::kWorkingMemory, 1, Error(Reason::kExceedsMemoryBudget, "x"));
  EXPECT_TRUE(Fails((*provider)->WorkingMemory(request, 1), Reason::kExceedsMemoryBudget));
  fake_.FailNth(Entry::kBuildResources, 1, Error(Reason::kDeviceFault, "x"));
  EXPECT_TRUE(Fails((*provider)->BuildResources(request), Reason::kDeviceFault));
}

}  // namespace
}  // namespace tenon::plugin
