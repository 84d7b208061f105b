// The classes of requests that wait.

#ifndef TENON_SERVER_PRIORITY_H_
#define TENON_SERVER_PRIORITY_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "tenon/v1/execution.pb.h"

namespace tenon::server {

// In the order in which they are served (server/waiting_line.h says how strictly).
enum class Priority { kInteractive, kDefault, kBulk };

inline constexpr size_t kPriorities = 3;
inline constexpr std::array<Priority, kPriorities> kAllPriorities = {
    Priority::kInteractive, Priority::kDefault, Priority::kBulk};

// "interactive", "default", "bulk": the label `class` of metrics.
constexpr std::string_view PriorityName(Priority priority) {
  constexpr std::array<std::string_view, kPriorities> kNames = {"interactive", "default", "bulk"};
  return kNames[static_cast<size_t>(priority)];
}

// A class that was not given, or that the wire does not know, is the default one.
constexpr Priority PriorityOf(v1::PriorityClass wire) {
  return wire == v1::PRIORITY_CLASS_INTERACTIVE ? Priority::kInteractive
         : wire == v1::PRIORITY_CLASS_BULK      ? Priority::kBulk
                                                : Priority::kDefault;
}

// Of a job: it may wait for everything else, unless its submission says otherwise.
constexpr Priority JobPriorityOf(v1::PriorityClass wire) {
  return wire == v1::PRIORITY_CLASS_UNSPECIFIED ? Priority::kBulk : PriorityOf(wire);
}

constexpr v1::PriorityClass ToWire(Priority priority) {
  return priority == Priority::kInteractive ? v1::PRIORITY_CLASS_INTERACTIVE
         : priority == Priority::kBulk      ? v1::PRIORITY_CLASS_BULK
                                            : v1::PRIORITY_CLASS_DEFAULT;
}

}  // namespace tenon::server

#endif  // TENON_SERVER_PRIORITY_H_
