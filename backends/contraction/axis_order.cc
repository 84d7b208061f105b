#include "backends/contraction/axis_order.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tenon::contraction {
namespace {

using Indices = std::vector<int>;

// What a step knows of its operands when the order of its result is fixed. Lists of batch and kept
// indices are in the result's order.
struct StepIndices {
  Indices batch, contracted;
  Indices kept[2];     // of the left and the right operand
  Indices run;         // innermost of the result, a vector's worth
  int run_holder = 0;  // operand that keeps all of `run`, or one of these:
};
constexpr int kRunInBatch = 2, kRunMixed = 3;

class AxisOrderChoice {
 public:
  explicit AxisOrderChoice(const AxisOrderProblem& problem)
      : problem_(problem), n_operands_(problem.natural.size()) {
    for (const Indices& indices : problem.indices) elements_.push_back(Product(indices));
  }

  std::vector<Indices> Run() {
    orders_ = problem_.natural;
    orders_.resize(problem_.indices.size());
    if (problem_.path.pairs.empty()) return std::move(orders_);
    orders_.back() = problem_.result;
    for (size_t s = problem_.path.pairs.size(); s-- > 0;) ChooseOperands(s);
    return std::move(orders_);
  }

 private:
  bool Holds(int tensor, int index) const {
    const Indices& indices = problem_.indices[tensor];
    return std::binary_search(indices.begin(), indices.end(), index);
  }

  bool IsOperand(int tensor) const { return tensor < static_cast<int>(n_operands_); }
  bool IsFree(int tensor) const { return !IsOperand(tensor) || problem_.formed[tensor]; }

  double Product(const Indices& indices) const {
    double product = 1;
    for (const int index : indices) product *= static_cast<double>(problem_.sizes[index]);
    return product;
  }

  // The last of `order` that together make a vector, or all of it. A run of no whole number of
  // vectors is twice as long, so that the last one costs less.
  Indices InnermostRun(const Indices& order) const {
    Indices run;
    for (size_t i = order.size(); i-- > 0 && !IsRun(run);) run.insert(run.begin(), order[i]);
    return run;
  }

  bool IsVector(const Indices& indices) const {
    return Product(indices) >= static_cast<double>(problem_.vector_elements);
  }

  bool IsRun(const Indices& indices) const {
    const auto product = static_cast<int64_t>(Product(indices));
    return product >= 2 * problem_.vector_elements ||
           (product >= problem_.vector_elements && product % problem_.vector_elements == 0);
  }

  void ChooseOperands(size_t s) {
    const int c = static_cast<int>(n_operands_ + s);
    const int operands[2] = {problem_.path.pairs[s].first, problem_.path.pairs[s].second};
    const StepIndices step = IndicesOf(operands[0], operands[1], c);
    const int vectors = VectorSide(operands, step);
    for (const int side : {0, 1}) {
      if (IsFree(operands[side])) orders_[operands[side]] = OrderOf(operands, side, vectors, step);
    }
  }

  StepIndices IndicesOf(int a, int b, int c) const {
    StepIndices step;
    for (const int index : orders_[c]) {
      const bool in_a = Holds(a, index);
      (in_a && Holds(b, index) ? step.batch : step.kept[in_a ? 0 : 1]).push_back(index);
    }
    step.contracted = ContractedOrder(a, b, c);
    step.run = InnermostRun(orders_[c]);
    const auto all_in = [&](const Indices& group) {
      return std::all_of(step.run.begin(), step.run.end(), [&](int index) {
        return std::find(group.begin(), group.end(), index) != group.end();
      });
    };
    step.run_holder = all_in(step.kept[0])   ? 0
                      : all_in(step.kept[1]) ? 1
                      : all_in(step.batch)   ? kRunInBatch
                                             : kRunMixed;
    return step;
  }

  // The operand along which vectors should run; kRunInBatch: across the batch; kRunMixed: along the
  // contracted indices, because nothing else is long enough.
  int VectorSide(const int (&operands)[2], const StepIndices& step) const {
    const double kept = std::max(Product(step.kept[0]), Product(step.kept[1]));
    const auto vector = static_cast<double>(problem_.vector_elements);
    if (step.run_holder == kRunInBatch && IsVector(step.batch)) return kRunInBatch;
    if (kept < vector) {
      const bool is_tiny = Product(step.contracted) < vector;
      return is_tiny && IsVector(step.batch) ? kRunInBatch : kRunMixed;
    }
    if (step.run_holder <= 1 && IsVector(step.kept[step.run_holder])) return step.run_holder;
    const int larger = Elements(operands[0]) >= Elements(operands[1]) ? 0 : 1;
    return IsVector(step.kept[larger]) ? larger : 1 - larger;
  }

  Indices OrderOf(const int (&operands)[2], int side, int vectors, const StepIndices& step) const {
    const Indices& kept = step.kept[side];
    if (vectors == kRunMixed) return Joined({step.batch, kept, step.contracted});
    if (vectors == kRunInBatch) {
      const Indices run = InnermostRun(step.batch);
      return Joined({Without(step.batch, run), kept, step.contracted, run});
    }
    const int tensor = operands[side];
    if (side == vectors) {
      const Indices by_survival = BySurvival(tensor, kept);
      const bool inherits = step.run_holder == side && !IsCheaperToBreak(operands, side, step);
      const Indices run = InnermostRun(inherits ? kept : by_survival);
      return Joined({step.batch, Without(kept, run), step.contracted, run});
    }
    // Broadcast, so whole groups can change places without harm: the step that forms it chooses.
    const bool kept_last = !IsOperand(tensor) && WantsLast(tensor, kept, step.contracted);
    Indices all = kept_last ? Joined({step.batch, step.contracted, kept})
                            : Joined({step.batch, kept, step.contracted});
    constexpr double kSmall = 1.0 / 8;
    if (IsOperand(tensor) || Elements(tensor) > kSmall * Elements(operands[1 - side])) return all;
    // Small and broadcast, so its order is for the step that forms it to choose.
    const Indices run = InnermostRun(BySurvival(tensor, Joined({kept, step.contracted})));
    return Joined({Without(all, run), run});
  }

  // Whether the vectors of the result had better be gathered here than where the operand is formed:
  // its step can't run vectors along them, and it is the larger tensor.
  bool IsCheaperToBreak(const int (&operands)[2], int side, const StepIndices& step) const {
    const int tensor = operands[side];
    if (IsOperand(tensor)) return false;
    const bool is_kept_below = std::all_of(step.run.begin(), step.run.end(),
                                           [&](int index) { return Survival(tensor, index) > 0; });
    const double result = Product(step.batch) * Product(step.kept[0]) * Product(step.kept[1]);
    return !is_kept_below && result < Elements(tensor);
  }

  double Elements(int tensor) const { return elements_[tensor]; }

  // For how many of the steps that lead to `tensor` vectors could run along the index: it comes
  // from the larger operand alone.
  int Survival(int tensor, int index) const {
    constexpr int kFarEnough = 16;
    int steps = 0;
    while (!IsOperand(tensor) && steps < kFarEnough) {
      auto [larger, smaller] = problem_.path.pairs[tensor - n_operands_];
      if (Elements(larger) < Elements(smaller)) std::swap(larger, smaller);
      if (!Holds(larger, index) || Holds(smaller, index)) break;
      tensor = larger;
      ++steps;
    }
    return steps;
  }

  // Whether the step that forms `tensor` can run vectors along all of `x` but not along all of `y`.
  bool WantsLast(int tensor, const Indices& x, const Indices& y) const {
    const auto [left, right] = problem_.path.pairs[tensor - n_operands_];
    const int vectors = PreferredSide(left, right, tensor) == 0 ? left : right;
    const int other = vectors == left ? right : left;
    const auto all_alone = [&](const Indices& indices) {
      return !indices.empty() && std::all_of(indices.begin(), indices.end(), [&](int index) {
        return Holds(vectors, index) && !Holds(other, index);
      });
    };
    return all_alone(x) && !all_alone(y);
  }

  // The operand along which vectors cost least when `c` is formed from `a` and `b`: one that lies
  // right; else one whose order is free, the larger one; else the smaller one, which must be
  // packed.
  int PreferredSide(int a, int b, int c) const {
    const auto lies_right = [&](int tensor, int other) {
      if (IsFree(tensor)) return false;
      const Indices& order = problem_.natural[tensor];
      return !order.empty() && !Holds(other, order.back()) && Holds(c, order.back());
    };
    const bool right_a = lies_right(a, b), right_b = lies_right(b, a);
    if (right_a != right_b) return right_a ? 0 : 1;
    if (IsFree(a) != IsFree(b)) return IsFree(a) ? 0 : 1;
    const bool a_is_larger = Elements(a) >= Elements(b);
    return (IsFree(a) || right_a) == a_is_larger ? 0 : 1;
  }

  // Stably sorted so that the index that survives longest stands last.
  Indices BySurvival(int tensor, const Indices& indices) const {
    std::vector<std::pair<int, int>> ranked;
    for (const int index : indices) ranked.emplace_back(Survival(tensor, index), index);
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& x, const auto& y) { return x.first < y.first; });
    Indices sorted;
    for (const auto& [steps, index] : ranked) sorted.push_back(index);
    return sorted;
  }

  Indices ContractedOrder(int a, int b, int c) const {
    const auto is_contracted = [&](int index) {
      return Holds(a, index) && Holds(b, index) && !Holds(c, index);
    };
    const bool from_a = !IsFree(a) || (IsFree(b) && Elements(a) >= Elements(b));
    const int leading = from_a ? a : b;
    Indices order = IsOperand(leading) ? problem_.natural[leading] : problem_.indices[leading];
    std::erase_if(order, [&](int index) { return !is_contracted(index); });
    if (IsOperand(leading)) return order;
    const auto [left, right] = problem_.path.pairs[leading - n_operands_];
    const auto origin = [&, left = left, right = right](int index) {
      return Holds(right, index) - Holds(left, index);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int x, int y) { return origin(x) < origin(y); });
    return order;
  }

  static Indices Without(Indices indices, const Indices& taken) {
    std::erase_if(indices, [&](int index) {
      return std::find(taken.begin(), taken.end(), index) != taken.end();
    });
    return indices;
  }

  static Indices Joined(std::initializer_list<Indices> parts) {
    Indices all;
    for (const Indices& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  }

  const AxisOrderProblem& problem_;
  const size_t n_operands_;
  std::vector<double> elements_;  // per tensor
  std::vector<Indices> orders_;
};

}  // namespace

std::vector<std::vector<int>> ChooseAxisOrders(const AxisOrderProblem& problem) {
  return AxisOrderChoice(problem).Run();
}

}  // namespace tenon::contraction
