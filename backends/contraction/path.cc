#include "backends/contraction/path.h"

#include <algorithm>
#include <map>

#include "backends/core/error.h"

namespace tenon::contraction {
namespace {

// Replays the steps of a path; `current` maps what a step may name to SSA ids of binary pairs.
class PathReplay {
 public:
  PathReplay(const PathSteps& steps, size_t n_inputs) : steps_(steps) {
    current_.resize(n_inputs);
    for (size_t id = 0; id < n_inputs; ++id) current_[id] = static_cast<int>(id);
    next_id_ = static_cast<int>(n_inputs);
    alive_ = n_inputs;
  }

  absl::StatusOr<Path> Run() {
    for (step_ = 0; step_ < steps_.steps.size(); ++step_) TENON_RETURN_IF_ERROR(Apply());
    if (alive_ != 1) {
      return Error(Reason::kBadPath,
                   StrCat("the path leaves ", alive_, " tensors over; a complete path leaves one"))
          .Field("path.steps")
          .Meta("tensors_left", alive_);
    }
    return std::move(path_);
  }

 private:
  bool linear() const { return steps_.format == PathSteps::Format::kLinear; }

  absl::Status StepError(const std::string& what) const {
    return Error(Reason::kBadPath, StrCat("path step ", step_, " ", what))
        .Field(StrCat("path.steps[", step_, "]"))
        .Meta("step", step_);
  }

  absl::Status CheckOperands(const std::vector<int64_t>& operands) const {
    if (operands.empty()) return StepError("names no tensor");
    for (size_t i = 0; i < operands.size(); ++i) {
      const int64_t name = operands[i];
      if (name < 0 || name >= static_cast<int64_t>(current_.size())) {
        return StepError(StrCat("names ", linear() ? "position " : "tensor ", name,
                                ", which is not in 0..",
                                static_cast<int64_t>(current_.size()) - 1));
      }
      if (current_[name] == kConsumed) {
        return StepError(StrCat("names tensor ", name, ", which is already consumed"));
      }
      if (std::find(operands.begin(), operands.begin() + i, name) != operands.begin() + i) {
        return StepError(StrCat("names ", name, " twice"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Apply() {
    const std::vector<int64_t>& operands = steps_.steps[step_];
    TENON_RETURN_IF_ERROR(CheckOperands(operands));
    int result = current_[operands[0]];
    for (size_t i = 1; i < operands.size(); ++i) {
      path_.pairs.emplace_back(result, current_[operands[i]]);
      result = next_id_++;
    }
    for (const int64_t name : operands) current_[name] = kConsumed;
    if (linear()) std::erase(current_, kConsumed);
    current_.push_back(result);
    alive_ -= operands.size() - 1;
    return absl::OkStatus();
  }

  static constexpr int kConsumed = -1;

  const PathSteps& steps_;
  size_t step_ = 0;
  size_t alive_ = 0;
  int next_id_ = 0;
  std::vector<int> current_;
  Path path_;
};

// Counts the living tensors below an id, in sums over blocks of powers of two (a Fenwick tree).
class LivingBelow {
 public:
  explicit LivingBelow(size_t ids) : sums_(ids + 1, 0) {}

  void Add(size_t id, int change) {
    for (size_t i = id + 1; i < sums_.size(); i += i & -i) sums_[i] += change;
  }
  int64_t operator()(size_t id) const {
    int64_t count = 0;
    for (size_t i = id; i > 0; i -= i & -i) count += sums_[i];
    return count;
  }

 private:
  std::vector<int> sums_;
};

}  // namespace

absl::StatusOr<Path> MakePath(const PathSteps& steps, size_t n_inputs) {
  return PathReplay(steps, n_inputs).Run();
}

PathSteps MakeSteps(const Path& path, PathSteps::Format format) {
  PathSteps steps{format, {}};
  steps.steps.reserve(path.pairs.size());
  if (format == PathSteps::Format::kSsa) {
    for (const auto& [a, b] : path.pairs) steps.steps.push_back({a, b});
    return steps;
  }
  // Results are appended in the order of their ids, so a position counts the living below.
  const size_t n_inputs = path.pairs.size() + 1;
  LivingBelow living(2 * n_inputs - 1);
  for (size_t id = 0; id < n_inputs; ++id) living.Add(id, 1);
  for (size_t s = 0; s < path.pairs.size(); ++s) {
    const auto [a, b] = path.pairs[s];
    steps.steps.push_back({living(a), living(b)});
    living.Add(a, -1);
    living.Add(b, -1);
    living.Add(n_inputs + s, 1);
  }
  return steps;
}

std::vector<std::vector<int>> TensorIndices(const Expression& expression, const Path& path,
                                            const std::vector<int>& fixed) {
  const size_t n_indices = expression.sizes.size();
  std::vector<bool> is_fixed(n_indices, false);
  for (const int index : fixed) is_fixed[index] = true;
  std::vector<int> holders(n_indices, 0);  // live tensors with the index, and one for the output
  for (const int index : expression.output) ++holders[index];

  std::vector<std::vector<int>> tensors;
  tensors.reserve(expression.inputs.size() + path.pairs.size());
  for (const std::vector<int>& input : expression.inputs) {
    std::vector<int>& indices = tensors.emplace_back(input);
    std::erase_if(indices, [&](int index) { return is_fixed[index]; });
    std::sort(indices.begin(), indices.end());
    indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
    for (const int index : indices) ++holders[index];
  }
  for (const auto& [left, right] : path.pairs) {
    const std::vector<int>& a = tensors[left];
    const std::vector<int>& b = tensors[right];
    for (const int index : a) --holders[index];
    for (const int index : b) --holders[index];
    std::vector<int> result;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
    std::erase_if(result, [&](int index) { return holders[index] == 0; });
    for (const int index : result) ++holders[index];
    tensors.push_back(std::move(result));
  }
  return tensors;
}

std::vector<bool> PrivateIndices(const Expression& expression) {
  constexpr int kNone = -1;
  std::vector<int> holder(expression.sizes.size(), kNone);
  std::vector<bool> is_private(expression.sizes.size(), true);
  for (size_t k = 0; k < expression.inputs.size(); ++k) {
    for (const int index : expression.inputs[k]) {
      if (holder[index] != kNone && holder[index] != static_cast<int>(k)) is_private[index] = false;
      holder[index] = static_cast<int>(k);
    }
  }
  for (const int index : expression.output) is_private[index] = false;
  return is_private;
}

absl::StatusOr<std::vector<int>> MakeSliced(const Expression& expression,
                                            const std::vector<std::string>& names) {
  std::map<std::string_view, int> ids;
  for (size_t i = 0; i < expression.names.size(); ++i) {
    ids.emplace(expression.names[i], static_cast<int>(i));
  }
  std::vector<int> sliced;
  std::vector<bool> seen(expression.names.size(), false);
  for (size_t i = 0; i < names.size(); ++i) {
    const auto position = ids.find(names[i]);
    if (position == ids.end()) {
      return Error(Reason::kBadSlice, StrCat("sliced index '", names[i], "' is held by no operand"))
          .Field(StrCat("sliced[", i, "]"))
          .Meta("index", names[i]);
    }
    if (seen[position->second]) {
      return Error(Reason::kBadSlice, StrCat("index '", names[i], "' is sliced twice"))
          .Field(StrCat("sliced[", i, "]"))
          .Meta("index", names[i]);
    }
    seen[position->second] = true;
    sliced.push_back(position->second);
  }
  return sliced;
}

}  // namespace tenon::contraction
