#include "backends/planner/plan_key.h"

#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "backends/planner/time_model.h"

namespace tenon::planner {
namespace {

// Changes when the serialisation or the meaning of an option does.
constexpr uint64_t kVersion = 2;

// Integers in seven bits a byte, the lowest first, so that most take one. Lists begin with their
// length, so that no two questions have one serialisation.
class KeyWriter {
 public:
  explicit KeyWriter(size_t bytes) { bytes_.resize(bytes); }

  void Add(uint64_t value) {
    if (end_ + kLongest > bytes_.size()) bytes_.resize(2 * bytes_.size() + kLongest);
    for (; value >= 0x80; value >>= 7) bytes_[end_++] = static_cast<char>(value | 0x80);
    bytes_[end_++] = static_cast<char>(value);
  }
  void Add(int64_t value) { Add(static_cast<uint64_t>(value)); }
  void Add(int value) { Add(static_cast<uint64_t>(value)); }
  void Add(bool value) { Add(uint64_t{value}); }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value + 0.0)); }  // -0 is 0
  void Add(Method method) { Add(static_cast<uint64_t>(method)); }
  void Add(const std::pair<int, int>& pair) {
    Add(pair.first);
    Add(pair.second);
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Add(uint64_t{values.size()});
    for (const T& value : values) Add(value);
  }
  template <typename T>
  void Add(const std::optional<T>& value) {
    Add(value.has_value());
    if (value.has_value()) Add(*value);
  }
  void Add(const Plan& plan) {
    Add(plan.path.pairs);
    Add(plan.sliced);
  }
  void Text(std::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.replace(end_, bytes_.size() - end_, text);
    end_ = bytes_.size();
  }

  std::string Take() {
    bytes_.resize(end_);
    return std::move(bytes_);
  }

 private:
  static constexpr size_t kLongest = 10;
  std::string bytes_;
  size_t end_ = 0;
};

void AddObjective(const Objective& objective, KeyWriter& key) {
  key.Add(static_cast<uint64_t>(objective.kind));
  switch (objective.kind) {
    case Objective::Kind::kWeighted:
      key.Add(objective.flops_weight);
      key.Add(objective.read_write_weight);
      return;
    case Objective::Kind::kLargest:
      return;
    case Objective::Kind::kSeconds: {
      const StepTimes& times = *objective.times;
      for (const double time : {times.step, times.multiply_add, times.near_read, times.far_read,
                                times.near_write, times.far_write, times.near_elements}) {
        key.Add(time);
      }
      return;
    }
  }
}

void AddOptions(const SearchOptions& options, std::string_view context, KeyWriter& key) {
  AddObjective(options.objective, key);
  key.Add(options.target_elements);
  key.Add(options.memory_bytes);
  const bool ranks = options.objective.kind == Objective::Kind::kSeconds;
  if (options.memory_bytes.has_value() || ranks) key.Text(context);
  if (options.target_elements.has_value() || options.memory_bytes.has_value()) {
    key.Add(options.allow_output_slicing);
    key.Add(static_cast<uint64_t>(options.slicing_mode));
  }
  key.Add(options.methods);
  key.Add(options.seed);
  key.Add(options.max_trials);
  key.Add(options.max_seconds);
  key.Add(options.deterministic);
  key.Add(options.worthwhile);
  key.Add(options.simplify);
  key.Add(options.initial);
}

uint64_t Mixed(uint64_t lane, uint64_t word, uint64_t factor) {
  lane = (lane ^ word) * factor;
  return lane ^ lane >> 32;
}

// Two lanes of multiplications by odd constants over words of eight bytes, then the length.
std::array<uint64_t, 2> HashOf(std::string_view bytes) {
  constexpr uint64_t kFactors[] = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu};
  std::array<uint64_t, 2> lanes = {kFactors[1], kFactors[0]};
  const auto add = [&](uint64_t word) {
    lanes[0] = Mixed(lanes[0], word, kFactors[0]);
    lanes[1] = Mixed(lanes[1], std::rotl(word, 32), kFactors[1]);
  };
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    add(word);
  }
  uint64_t rest = 0;
  for (; i < bytes.size(); ++i) rest = rest << 8 | static_cast<unsigned char>(bytes[i]);
  add(rest);
  add(bytes.size());
  add(0);
  return lanes;
}

}  // namespace

PlanKey MakePlanKey(const contraction::Expression& expression, const SearchOptions& options,
                    std::string_view context, std::string_view owner) {
  KeyWriter key(64 + 8 * expression.inputs.size() + 2 * expression.sizes.size());
  key.Add(kVersion);
  key.Add(expression.inputs);
  key.Add(expression.output);
  key.Add(expression.sizes);
  AddOptions(options, context, key);
  if (!owner.empty()) key.Text(owner);  // last, so that no other key reads the same
  PlanKey result;
  result.bytes = key.Take();
  result.hash = HashOf(result.bytes);
  return result;
}

}  // namespace tenon::planner
