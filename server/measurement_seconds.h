// What measurements took, so that one whose deadline can't be met is refused at its header.

#ifndef TENON_SERVER_MEASUREMENT_SECONDS_H_
#define TENON_SERVER_MEASUREMENT_SECONDS_H_

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace tenon::server {

// Seconds of earlier calls by what they did, and from them how soon a call can have its first
// score. There is no model of a measure's costs behind it: a call unlike all before has no
// estimate. Bounded; lost when the process ends. Thread-safe.
class MeasurementSeconds {
 public:
  // Calls of one kind do the same work on data of any size.
  struct Work {
    std::string kind;
    int64_t rows = 0, columns = 0;  // of the data set

    friend auto operator<=>(const Work&, const Work&) = default;
  };

  // The original side was built.
  void ObserveOriginal(const Work& work, double seconds);
  // A projection was scored; `seconds` of all threads that the call may use.
  void ObserveProjection(const Work& work, double seconds);

  // The original side and one projection, in seconds, by the fastest calls of this kind whose rows
  // were at most kFarthest times more or fewer: rather too few than too many. Absent: there was
  // none.
  std::optional<double> UntilFirstScore(const Work& work) const;

  // A call was refused by its estimate, which counts a little less from now on: one that is wrong
  // must not keep a client out for ever.
  void Refused(const Work& work);

  static constexpr double kFarthest = 4;

 private:
  struct Seconds {
    std::optional<double> original, projection;
  };
  using Size = std::pair<int64_t, int64_t>;  // rows, columns
  struct Kind {
    std::map<Size, Seconds> sizes;
    std::list<std::string>::iterator use;
  };

  void Observe(const Work& work, double seconds, std::optional<double> Seconds::*side);
  const std::pair<const Size, Seconds>* Nearest(const Work& work) const;

  mutable std::mutex mutex_;
  std::map<std::string, Kind> kinds_;
  std::list<std::string> uses_;  // of kinds, the latest first
};

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_SECONDS_H_
