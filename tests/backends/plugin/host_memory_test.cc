#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "backends/plugin/provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::plugin {
namespace {

using tenon::testing::Fails;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(HostMemoryTest, CountsAndRefusesOverTheLimit) {
  HostMemory memory(1000);
  void* first = memory.Allocate(600, 64);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(memory.Allocate(401, 64), nullptr);
  void* second = memory.Allocate(400, 64);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(memory.current_bytes(), 1000);
  memory.Release(first, 600);
  EXPECT_EQ(memory.current_bytes(), 400);
  EXPECT_EQ(memory.peak_bytes(), 1000);
  memory.Release(nullptr, 400);
  EXPECT_EQ(memory.current_bytes(), 400);
  memory.Release(second, 400);
  EXPECT_EQ(memory.current_bytes(), 0);
  EXPECT_EQ(memory.peak_bytes(), 1000);
}

TEST(HostMemoryTest, AlignsAsAsked) {
  HostMemory memory(64 * kMiB);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, 4 * kMiB}) {
    for (const int64_t alignment : {int64_t{1}, int64_t{8}, int64_t{4096}, 2 * kMiB}) {
      void* block = memory.Allocate(bytes, alignment);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
      std::memset(block, 1, bytes);
      memory.Release(block, bytes);
    }
  }
  EXPECT_EQ(memory.current_bytes(), 0);
}

TEST(HostMemoryTest, RefusesNonsenseAndCountsNothingForIt) {
  HostMemory memory(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(memory.Allocate(-1, 64), nullptr);
  EXPECT_EQ(memory.Allocate(8, 0), nullptr);
  EXPECT_EQ(memory.Allocate(8, 3), nullptr);
  EXPECT_EQ(memory.Allocate(8, 4 * kMiB), nullptr);
  EXPECT_EQ(memory.Allocate(std::numeric_limits<int64_t>::max(), 64), nullptr);
  EXPECT_EQ(memory.current_bytes(), 0);
  EXPECT_EQ(memory.peak_bytes(), 0);
  HostMemory none(-5);
  EXPECT_EQ(none.Allocate(1, 64), nullptr);
}

TEST(HostMemoryTest, TheTableLeadsToTheObject) {
  HostMemory memory(100);
  const tenon_host* host = memory.host();
  EXPECT_EQ(host->struct_size, sizeof(tenon_host));
  EXPECT_EQ(host->abi_version, TENON_ABI_VERSION);
  void* block = host->allocate(host->context, 60, 64);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(host->allocate(host->context, 60, 64), nullptr);
  EXPECT_EQ(memory.current_bytes(), 60);
  host->release(host->context, block, 60);
  EXPECT_EQ(memory.current_bytes(), 0);
  host->log(host->context, 0, "not shown");
}

TEST(HostMemoryTest, ThreadsNeverPassTheLimit) {
  HostMemory memory(300);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory] {
      for (int i = 0; i < 2000; ++i) {
        if (void* block = memory.Allocate(100, 64)) memory.Release(block, 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.current_bytes(), 0);
  EXPECT_GE(memory.peak_bytes(), 100);
  EXPECT_LE(memory.peak_bytes(), 300);
}

tenon_status StatusWith(const char* reason, const char* message) {
  tenon_status status{};
  status.struct_size = sizeof(status);
  std::strncpy(status.reason, reason, sizeof(status.reason) - 1);
  std::strncpy(status.message, message, sizeof(status.message) - 1);
  return status;
}

TEST(AbiStatusTest, EveryReasonCrossesTheInterface){
#define TENON_CROSS(id, name, canonical)                                            \
  {                                                                                 \
    tenon_status status{};                                                          \
    const int32_t result = ToAbiStatus(Error(Reason::id, "text").Build(), &status); \
    EXPECT_EQ(result, static_cast<int32_t>(absl::StatusCode::canonical));           \
    EXPECT_EQ(status.code, result);                                                 \
    EXPECT_STREQ(status.reason, name);                                              \
    EXPECT_TRUE(Fails(FromAbiStatus(result, status), Reason::id));                  \
    EXPECT_EQ(FromAbiStatus(result, status).message(), "text");                     \
  }
    TENON_REASONS(TENON_CROSS)
#undef TENON_CROSS
}

TEST(AbiStatusTest, Ok) {
  tenon_status status = StatusWith("OLD", "old");
  EXPECT_EQ(ToAbiStatus(absl::OkStatus(), &status), 0);
  EXPECT_EQ(status.code, 0);
  EXPECT_STREQ(status.reason, "");
  EXPECT_STREQ(status.message, "");
  EXPECT_TRUE(FromAbiStatus(0, StatusWith("INTERNAL", "ignored")).ok());
  EXPECT_EQ(ToAbiStatus(absl::NotFoundError("x"), nullptr), 5);
}

TEST(AbiStatusTest, TheCodeDecides) {
  // The status says OK, the call says no.
  const absl::Status silent = FromAbiStatus(13, tenon_status{});
  EXPECT_TRUE(Fails(silent, Reason::kInternal));
  EXPECT_NE(silent.message(), "");
  // A known reason that belongs to another code.
  EXPECT_TRUE(Fails(FromAbiStatus(14, StatusWith("BAD_PATH", "x")), Reason::kDeviceFault));
  // Unknown reasons, by the code's meaning on a device.
  const std::pair<int32_t, Reason> expected[] = {{1, Reason::kClientCancelled},
                                                 {3, Reason::kBadParameter},
                                                 {4, Reason::kDeadline},
                                                 {8, Reason::kDeviceMemory},
                                                 {12, Reason::kUnsupportedByProvider},
                                                 {14, Reason::kDeviceFault},
                                                 {2, Reason::kInternal},
                                                 {9, Reason::kInternal},
                                                 {17, Reason::kInternal},
                                                 {-3, Reason::kInternal}};
  for (const auto& [code, reason] : expected) {
    const absl::Status error = FromAbiStatus(code, StatusWith("ITS_OWN", "text"));
    EXPECT_TRUE(Fails(error, reason)) << code;
    EXPECT_EQ(error.message(), "text");
    EXPECT_EQ(GetErrorDetails(error).metadata.at("provider_reason"), "ITS_OWN");
    EXPECT_EQ(GetErrorDetails(error).metadata.at("provider_code"), std::to_string(code));
  }
}

TEST(AbiStatusTest, ArraysWithoutAnEndAndIllFormedText) {
  tenon_status status{};
  std::memset(status.reason, 'R', sizeof(status.reason));
  std::memset(status.message, '\xFF', sizeof(status.message));
  const absl::Status error = FromAbiStatus(14, status);
  EXPECT_TRUE(Fails(error, Reason::kDeviceFault));
  EXPECT_EQ(GetErrorDetails(error).metadata.at("provider_reason"), std::string(64, 'R'));
  EXPECT_EQ(error.message().size(), 3 * sizeof(status.message));  // U+FFFD for every byte
}

TEST(AbiStatusTest, LongTextsAreCutBetweenCodePoints) {
  for (size_t lead = 0; lead < 4; ++lead) {
    std::string text(lead, 'a');
    while (text.size() < 2000) text += "😀";
    tenon_status status;
    std::memset(&status, 'x', sizeof(status));
    ToAbiStatus(Error(Reason::kInternal, text).Build(), &status);
    const std::string cut = status.message;
    EXPECT_GT(cut.size(), sizeof(status.message) - 5);
    EXPECT_LT(cut.size(), sizeof(status.message));
    EXPECT_EQ(cut, text.substr(0, cut.size()));
    EXPECT_EQ(ReplaceInvalidUtf8(cut), cut);
  }
}

}  // namespace
}  // namespace tenon::plugin
