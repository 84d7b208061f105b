#include "backends/schedule/program_cache.h"

#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "backends/schedule/prepared_contraction.h"

namespace tenon::schedule {
namespace {

// Lengths stand before what they count, so that no two requests have one serialisation.
class KeyWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void Add(T value) {
    const auto bytes = std::bit_cast<std::array<char, sizeof(value)>>(value);
    key_.append(bytes.data(), bytes.size());
  }
  void Add(const void* address) { Add(reinterpret_cast<uintptr_t>(address)); }
  void Add(const std::string& text) {
    Add(text.size());
    key_ += text;
  }
  void Add(const TensorSpec& spec) {
    Add(spec.dtype);
    Add(spec.shape);
  }
  void Add(const std::vector<bool>& flags) {
    Add(flags.size());
    for (const bool flag : flags) Add(flag);
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(values.size());
    for (const T& value : values) Add(value);
  }

  std::string Take() { return std::move(key_); }

 private:
  std::string key_;
};

// Programs, kernels and names are some hundred bytes per step and operand.
int64_t EstimatedBytes(const std::string& key, const PreparedContraction& contraction) {
  constexpr int64_t kStepBytes = 2048;
  const auto steps = static_cast<int64_t>(contraction.program->descriptor().n_steps);
  return 4 * static_cast<int64_t>(key.size()) +
         kStepBytes * (1 + steps * static_cast<int64_t>(contraction.lanes.size()));
}

}  // namespace

std::string PreparationKey(const ContractionRequest& request,
                           const std::vector<std::shared_ptr<plugin::Provider>>& providers,
                           int threads) {
  KeyWriter key;
  key.Add(request.network.inputs);
  key.Add(request.network.output);
  key.Add(request.network.sizes.size());
  for (const auto& [name, size] : request.network.sizes) {
    key.Add(name);
    key.Add(size);
  }
  key.Add(request.operands);
  key.Add(request.varying);
  key.Add(request.expected_sets);
  key.Add(request.max_sets_together);
  key.Add(request.dtype.has_value());
  if (request.dtype.has_value()) key.Add(*request.dtype);
  key.Add(request.accumulate_double);
  key.Add(request.normalize);
  key.Add(request.path.has_value());
  if (request.path.has_value()) {
    key.Add(request.path->format);
    key.Add(request.path->steps);
  }
  key.Add(request.sliced);
  key.Add(request.allow_slicing);
  key.Add(request.allow_output_slicing);
  key.Add(request.target_elements);
  key.Add(request.memory_budget_bytes);
  key.Add(request.first_group);
  key.Add(request.last_group);
  key.Add(threads);
  for (const auto& provider : providers) key.Add(provider.get());
  return key.Take();
}

std::shared_ptr<const PreparedContraction> ProgramCache::Find(const std::string& key) {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  ++(found == by_key_.end() ? counters_.misses : counters_.hits);
  if (found == by_key_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->contraction;
}

std::shared_ptr<const PreparedContraction> ProgramCache::Peek(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : found->second->contraction;
}

void ProgramCache::Insert(std::string key, std::shared_ptr<const PreparedContraction> contraction) {
  std::list<Entry> evicted;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return;
  const int64_t bytes = EstimatedBytes(key, *contraction);
  if (bytes > max_bytes_ || max_entries_ == 0) return;
  while (entries_.size() >= max_entries_ || bytes > max_bytes_ - bytes_) {
    by_key_.erase(entries_.back().key);
    bytes_ -= entries_.back().bytes;
    evicted.splice(evicted.begin(), entries_, std::prev(entries_.end()));
    ++counters_.evictions;
  }
  entries_.push_front(Entry{std::move(key), std::move(contraction), bytes});
  by_key_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
}

void ProgramCache::Clear() {
  std::list<Entry> removed;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  by_key_.clear();
  removed.swap(entries_);
  bytes_ = 0;
}

ProgramCache::Counters ProgramCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

size_t ProgramCache::entries() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

int64_t ProgramCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace tenon::schedule
