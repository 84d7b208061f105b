// A provider that does what a test tells it to, behind the real interface table.
//
// By default it is a well-behaved device that computes SliceValue for every element. A test scripts
// it: the n-th call of an entry fails or stalls until cancelled, entries lie, figures are wrong. It
// counts what it hands out, so that a test sees what the host forgot to give back.
//
//   FakeProvider fake;
//   fake.FailNth(FakeProvider::Entry::kRunGroup, 3, Error(Reason::kDeviceFault, "gone"));
//   auto provider = plugin::Provider::Create(fake.api(), fake.options());

#ifndef TENON_TESTS_SUPPORT_FAKE_PROVIDER_H_
#define TENON_TESTS_SUPPORT_FAKE_PROVIDER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "backends/plugin/abi.h"

namespace tenon::testing {

// Thread-safe once a provider has been made from it; set `info`, `table` and the hooks before.
// Outlives every provider made from it.
class FakeProvider {
 public:
  enum class Entry {
    kCreate,
    kDescribe,
    kWarmUp,
    kCompile,
    kCompiledInfo,
    kBegin,
    kBindSet,
    kRunGroup,
    kStatistics,
    kWorkingMemory,
    kBuildResources,
  };

  struct Group {
    int worker = 0;
    int64_t block = 0, first_slice = 0, last_slice = 0;
    bool operator==(const Group&) const = default;
  };

  // Things made by the provider and not destroyed yet.
  struct Live {
    int providers = 0, compiled = 0, executions = 0;
    bool operator==(const Live&) const = default;
  };

  explicit FakeProvider(std::string name = "fake");
  ~FakeProvider();
  FakeProvider(const FakeProvider&) = delete;
  FakeProvider& operator=(const FakeProvider&) = delete;

  const tenon_provider_api* api() const { return &table; }
  // What Provider::Create must pass: it tells the table which fake is meant.
  std::string options() const;

  // The table; a test may lie in it (abi_version, struct_size, entries).
  tenon_provider_api table;
  // What `describe` answers; `info.name` points to a string that lives as long as the fake.
  tenon_provider_info info;
  // What `compiled_info` answers beside kernels and refusals (one "fake" and one "" per step).
  tenon_compiled_info compiled_info;
  // Last word on the answer of `compiled_info`, to make it wrong.
  std::function<void(tenon_compiled_info*)> edit_compiled_info;
  // Bytes that `begin` takes beyond what the program and compiled_info say.
  int64_t extra_bytes = 0;
  // The real number added to every element `element` of `block` by `slice`.
  std::function<double(int64_t block, int64_t slice, int64_t element)> slice_value = SliceValue;
  // Fills the outputs of `build_resources`; the default sets every byte to the output's kind.
  std::function<absl::Status(const tenon_resource_request&)> build = FillWithKind;
  int64_t working_memory_bytes = 4096;
  // Entries that succeed without making their object.
  std::set<Entry> gives_nothing;

  // Has the provider normalise: the exponent of a group is that of its first slice here.
  void SetNormalizes(std::function<int64_t(int64_t block, int64_t slice)> group_exponent);

  // Small integers, so that sums of any order are exact.
  static double SliceValue(int64_t block, int64_t slice, int64_t element);
  static absl::Status FillWithKind(const tenon_resource_request& request);

  // The `n`-th call (from 1) of `entry` from now on fails with `error`; n = 0 means every call.
  void FailNth(Entry entry, int n, absl::Status error);
  // The same for that call and all after it: `Error(Reason::kDeviceFault, ..)` is a device that
  // dies.
  void FailFrom(Entry entry, int n, absl::Status error);
  // The `n`-th call (from 1) of `entry` waits until its execution or request is cancelled and then
  // returns CANCELLED. Only kBegin, kBindSet, kRunGroup and kBuildResources can be cancelled.
  void StallNth(Entry entry, int n);
  // Returns once a call stands still because of StallNth.
  void WaitUntilStalled();

  int calls(Entry entry) const;
  std::vector<Group> groups() const;  // run_group calls that succeeded, in order of completion
  Live live() const;

 private:
  struct Access;
  friend struct Access;

  // Counts a call and does what the script says; `cancel` may be null.
  absl::Status Enter(Entry entry, const int32_t* cancel);
  void Count(int Live::*kind, int change);

  const int64_t id_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::condition_variable stalled_changed_;
  std::map<Entry, int> calls_;
  std::map<std::pair<Entry, int>, absl::Status> failures_;
  std::map<Entry, std::pair<int, absl::Status>> deaths_;  // from which call on
  std::function<int64_t(int64_t block, int64_t slice)> group_exponent_;
  std::set<std::pair<Entry, int>> stalls_;
  int stalled_ = 0;
  std::vector<Group> groups_;
  Live live_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_SUPPORT_FAKE_PROVIDER_H_
