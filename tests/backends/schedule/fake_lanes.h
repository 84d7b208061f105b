// A sliced sum on several fake providers, whose bits depend on the order of the additions.

#ifndef TENON_TESTS_BACKENDS_SCHEDULE_FAKE_LANES_H_
#define TENON_TESTS_BACKENDS_SCHEDULE_FAKE_LANES_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backends/schedule/contraction_job.h"
#include "tests/support/fake_provider.h"

namespace tenon::schedule::fake_lanes {

using tenon::testing::FakeProvider;

inline constexpr int64_t kSlices = 12, kElements = 3;

// A number whose sums depend on their order, the same for every provider.
inline double OrderedValue(int64_t block, int64_t slice, int64_t element) {
  std::minstd_rand random(static_cast<unsigned>(1 + 7 * slice + 1009 * block + 1000003 * element));
  random.discard(3);
  return std::ldexp(static_cast<double>(random()) / 2147483648.0 - 0.5,
                    static_cast<int>(random() % 60));
}

// A fake and the provider made from it.
struct FakeLane {
  static constexpr FakeProvider::Entry kRunGroup = FakeProvider::Entry::kRunGroup;

  explicit FakeLane(const std::string& name) : fake(name) { fake.slice_value = OrderedValue; }
  // After the script is set.
  std::shared_ptr<plugin::Provider> Make() {
    auto made = plugin::Provider::Create(fake.api(), fake.options());
    EXPECT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE((*made)->WarmUp().ok());
    provider = *made;
    return provider;
  }
  int group_calls() const { return fake.calls(FakeProvider::Entry::kRunGroup); }
  // Has the lane's `n`-th group (from 1) wait until `condition` holds.
  template <typename Condition>
  void HoldGroup(int n, Condition condition) {
    fake.slice_value = [this, n, condition](int64_t block, int64_t slice, int64_t element) {
      if (element == 0 && group_calls() == n) {
        while (!condition()) std::this_thread::yield();
      }
      return OrderedValue(block, slice, element);
    };
  }

  FakeProvider fake;
  std::shared_ptr<plugin::Provider> provider;
};

// The sum over s, in kSlices groups, for each of `blocks` values of a sliced index of the output.
inline ContractionRequest SlicedSum(int64_t blocks, int threads) {
  ContractionRequest request;
  request.network.inputs = {{"s", "o", "a"}, {"s", "a"}};
  request.network.output = {"a", "o"};
  request.operands = {{DType::kFloat64, {kSlices, blocks, kElements}},
                      {DType::kFloat64, {kSlices, kElements}}};
  request.sliced = {"o", "s"};
  request.threads = threads;
  return request;
}

// The job's operands and result; the fakes read none of them.
struct Buffers {
  explicit Buffers(int64_t blocks)
      : left(static_cast<size_t>(kSlices * blocks * kElements)),
        right(static_cast<size_t>(kSlices * kElements)),
        result(static_cast<size_t>(blocks * kElements), -1) {}
  std::vector<double> left, right, result;
};

}  // namespace tenon::schedule::fake_lanes

#endif  // TENON_TESTS_BACKENDS_SCHEDULE_FAKE_LANES_H_
