#include "backends/contraction/expression.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/tensor.h"

namespace tenon::contraction {
namespace {

// Renumbers the names of one network; remembers who fixed each size, for messages.
class ExpressionBuilder {
 public:
  ExpressionBuilder(const Network& network, const std::vector<std::vector<int64_t>>& shapes)
      : network_(network), shapes_(shapes) {}

  absl::StatusOr<Expression> Build() {
    TENON_RETURN_IF_ERROR(CheckCounts());
    for (size_t k = 0; k < shapes_.size(); ++k) TENON_RETURN_IF_ERROR(AddInput(k));
    TENON_RETURN_IF_ERROR(AddOutput());
    TENON_RETURN_IF_ERROR(CheckSizedNames());
    return std::move(expression_);
  }

 private:
  absl::Status CheckCounts() const {
    if (network_.inputs.empty()) {
      return Error(Reason::kBadExpression, "a contraction needs at least one operand")
          .Field("operands");
    }
    if (network_.inputs.size() > size_t{std::numeric_limits<int>::max() / 4}) {
      return Error(Reason::kOverflow, StrCat(network_.inputs.size(), " operands are too many"))
          .Field("operands");
    }
    if (shapes_.size() != network_.inputs.size()) {
      return Error(Reason::kBadExpression, StrCat("the expression has ", network_.inputs.size(),
                                                  " operands, but ", shapes_.size(), " were given"))
          .Field("operands")
          .Meta("expected_operands", network_.inputs.size())
          .Meta("actual_operands", shapes_.size());
    }
    return absl::OkStatus();
  }

  absl::Status AddInput(size_t k) {
    const std::vector<std::string>& names = network_.inputs[k];
    const std::vector<int64_t>& shape = shapes_[k];
    if (names.size() != shape.size()) {
      return Error(Reason::kShapeMismatch,
                   StrCat("operand ", k, " has ", names.size(), " indices, but its shape has ",
                          shape.size(), " axes"))
          .Field(StrCat("operands[", k, "].spec.shape"))
          .Meta("operand", k)
          .Meta("expected_rank", names.size())
          .Meta("actual_rank", shape.size());
    }
    std::vector<int>& input = expression_.inputs.emplace_back();
    for (size_t axis = 0; axis < names.size(); ++axis) {
      TENON_ASSIGN_OR_RETURN(const int index, AddAxis(k, axis));
      input.push_back(index);
    }
    if (!CheckedElementCount(shape).ok()) {
      return Error(Reason::kOverflow,
                   StrCat("the number of elements of operand ", k, " does not fit in 63 bits"))
          .Field(StrCat("operands[", k, "].spec.shape"))
          .Meta("operand", k);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int> AddAxis(size_t k, size_t axis) {
    const std::string& name = network_.inputs[k][axis];
    const int64_t extent = shapes_[k][axis];
    const std::string field = StrCat("operands[", k, "].spec.shape[", axis, "]");
    if (name.empty()) {
      return Error(Reason::kBadExpression,
                   StrCat("operand ", k, " has an empty index name on axis ", axis))
          .Field(StrCat("operands[", k, "].indices[", axis, "]"))
          .Meta("operand", k)
          .Meta("axis", axis);
    }
    if (extent < 0) {
      return Error(Reason::kShapeMismatch,
                   StrCat("operand ", k, ": index '", name, "' has the negative size ", extent,
                          " on axis ", axis))
          .Field(field)
          .Meta("operand", k)
          .Meta("axis", axis)
          .Meta("actual_size", extent);
    }
    const auto [position, is_new] = ids_.try_emplace(name, static_cast<int>(ids_.size()));
    if (is_new) {
      const auto given = network_.sizes.find(name);
      expression_.names.push_back(name);
      expression_.sizes.push_back(given == network_.sizes.end() ? extent : given->second);
      fixed_by_.push_back(given == network_.sizes.end() ? StrCat("operand ", k) : "index_sizes");
    }
    const int index = position->second;
    if (expression_.sizes[index] != extent) {
      return Error(Reason::kShapeMismatch,
                   StrCat("operand ", k, ": index '", name, "' has size ", extent, " on axis ",
                          axis, ", but size ", expression_.sizes[index], " by ", fixed_by_[index],
                          extent == 1 ? "; an axis of size 1 is not broadcast" : ""))
          .Field(field)
          .Meta("operand", k)
          .Meta("axis", axis)
          .Meta("index", name)
          .Meta("expected_size", expression_.sizes[index])
          .Meta("actual_size", extent);
    }
    return index;
  }

  absl::Status AddOutput() {
    std::vector<bool> seen(ids_.size(), false);
    std::vector<int64_t> shape;
    for (size_t i = 0; i < network_.output.size(); ++i) {
      const std::string& name = network_.output[i];
      const std::string field = StrCat("output[", i, "]");
      if (name.empty()) {
        return Error(Reason::kBadExpression, StrCat("output index ", i, " has an empty name"))
            .Field(field);
      }
      const auto position = ids_.find(name);
      if (position == ids_.end()) {
        return Error(Reason::kUnknownIndex,
                     StrCat("output index '", name, "' is held by no operand"))
            .Field(field)
            .Meta("index", name);
      }
      if (seen[position->second]) {
        return Error(Reason::kDuplicateOutput,
                     StrCat("index '", name, "' stands twice in the output"))
            .Field(field)
            .Meta("index", name);
      }
      seen[position->second] = true;
      expression_.output.push_back(position->second);
      shape.push_back(expression_.sizes[position->second]);
    }
    if (!CheckedElementCount(shape).ok()) {
      return Error(Reason::kOverflow,
                   "the number of elements of the output does not fit in 63 bits")
          .Field("output");
    }
    return absl::OkStatus();
  }

  absl::Status CheckSizedNames() const {
    for (const auto& [name, size] : network_.sizes) {
      if (ids_.contains(name)) continue;
      return Error(Reason::kUnknownIndex,
                   StrCat("a size is given for index '", name, "', which no operand holds"))
          .Field(StrCat("index_sizes[", name, "]"))
          .Meta("index", name)
          .Meta("size", size);
    }
    return absl::OkStatus();
  }

  const Network& network_;
  const std::vector<std::vector<int64_t>>& shapes_;
  std::map<std::string, int> ids_;
  std::vector<std::string> fixed_by_;  // per index
  Expression expression_;
};

}  // namespace

absl::StatusOr<Expression> MakeExpression(const Network& network,
                                          const std::vector<std::vector<int64_t>>& shapes) {
  return ExpressionBuilder(network, shapes).Build();
}

}  // namespace tenon::contraction
