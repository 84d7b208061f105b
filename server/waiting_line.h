// Requests that wait for something, in the order in which they get it.

#ifndef TENON_SERVER_WAITING_LINE_H_
#define TENON_SERVER_WAITING_LINE_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/priority.h"

namespace tenon::server {

using WaitTime = std::chrono::steady_clock::time_point;

// Names a request in all lines that it waits in. Never 0.
inline uint64_t NewTicket() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// Whoever waits in a line, beside what it waits with.
struct Waiter {
  uint64_t ticket = 0;  // one at a time in a line
  Priority priority = Priority::kDefault;
  WaitTime arrived{};
  WaitTime until = WaitTime::max();  // it waits no longer
};

// The order. A request counts as if it had come kClassStep later for every class that is before its
// own, and who counts as having come first is first. So a class is served before the ones after it,
// but a request that has waited for kClassStep goes before newer ones of the class before its own:
// waiting work ages, and no class starves.
//
// Each class has a bound of its own: however many of one class wait, the others find a place.
// Not thread-safe.
template <typename Item>
class WaitingLine {
 public:
  static constexpr std::chrono::seconds kClassStep{10};

  struct Entry : Waiter {
    Item item;
  };

  // `max_per_class` may wait of each class.
  explicit WaitingLine(size_t max_per_class) : max_per_class_(max_per_class) {}

  bool empty() const { return order_.empty(); }
  size_t size() const { return order_.size(); }
  size_t size(Priority priority) const { return sizes_[static_cast<size_t>(priority)]; }
  // With `more` places than usual.
  // Those that wait already stay.
  void SetMaxPerClass(size_t max_per_class) { max_per_class_ = max_per_class; }
  bool full(Priority priority, size_t more = 0) const {
    return size(priority) >= max_per_class_ + more;
  }

  void Push(Entry entry) {
    const Key key{entry.arrived + static_cast<int>(entry.priority) * kClassStep, ++pushed_};
    if (entry.until != WaitTime::max()) expiries_.emplace(entry.until, entry.ticket);
    ++sizes_[static_cast<size_t>(entry.priority)];
    places_.emplace(entry.ticket, key);
    order_.emplace(key, std::move(entry));
  }

  // The first of all; there is one.
  const Entry& front() const { return order_.begin()->second; }
  Entry TakeFront() { return *Remove(front().ticket); }
  // The first that is of another class; null: there is none.
  const Entry* FirstNot(Priority priority) const {
    if (size() == size(priority)) return nullptr;
    for (const auto& [key, entry] : order_) {
      if (entry.priority != priority) return &entry;
    }
    return nullptr;
  }
  // Absent: it does not wait here.
  std::optional<Entry> Remove(uint64_t ticket) {
    const auto place = places_.find(ticket);
    if (place == places_.end()) return std::nullopt;
    const auto found = order_.find(place->second);
    Entry entry = std::move(found->second);
    --sizes_[static_cast<size_t>(entry.priority)];
    expiries_.erase({entry.until, ticket});
    order_.erase(found);
    places_.erase(place);
    return entry;
  }
  // How many are before it; absent: it does not wait here.
  std::optional<size_t> Position(uint64_t ticket) const {
    const auto place = places_.find(ticket);
    if (place == places_.end()) return std::nullopt;
    return static_cast<size_t>(std::distance(order_.begin(), order_.find(place->second)));
  }

  // Those that wait no longer at `now`, those that gave up first first.
  std::vector<Entry> TakeExpired(WaitTime now) {
    std::vector<Entry> expired;
    while (!expiries_.empty() && expiries_.begin()->first <= now) {
      expired.push_back(*Remove(expiries_.begin()->second));
    }
    return expired;
  }
  // When the next one gives up; WaitTime::max(): none does.
  WaitTime next_expiry() const {
    return expiries_.empty() ? WaitTime::max() : expiries_.begin()->first;
  }

  // Calls `see` with each, in order.
  template <typename See>
  void ForEach(const See& see) const {
    for (const auto& [key, entry] : order_) see(entry);
  }

 private:
  using Key = std::pair<WaitTime, uint64_t>;

  size_t max_per_class_;
  uint64_t pushed_ = 0;
  std::array<size_t, kPriorities> sizes_{};
  std::map<Key, Entry> order_;
  std::unordered_map<uint64_t, Key> places_;
  std::set<std::pair<WaitTime, uint64_t>> expiries_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_WAITING_LINE_H_
