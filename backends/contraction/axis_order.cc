#include "backends/contraction/axis_order.h"

#include <algorithm>

namespace tenon::contraction {
namespace {

class AxisOrderChoice {
 public:
  explicit AxisOrderChoice(const AxisOrderProblem& problem)
      : problem_(problem), n_operands_(problem.natural.size()) {}

  std::vector<std::vector<int>> Run() {
    orders_ = problem_.natural;
    orders_.resize(problem_.indices.size());
    if (problem_.path.pairs.empty()) return std::move(orders_);
    orders_.back() = problem_.result;
    for (size_t s = problem_.path.pairs.size(); s-- > 0;) ChooseOperands(s);
    return std::move(orders_);
  }

 private:
  bool Holds(int tensor, int index) const {
    const std::vector<int>& indices = problem_.indices[tensor];
    return std::binary_search(indices.begin(), indices.end(), index);
  }

  bool IsOperand(int tensor) const { return tensor < static_cast<int>(n_operands_); }
  bool IsFree(int tensor) const { return !IsOperand(tensor) || problem_.formed[tensor]; }

  double Elements(int tensor) const {
    double elements = 1;
    for (const int index : problem_.indices[tensor]) elements *= problem_.sizes[index];
    return elements;
  }

  void ChooseOperands(size_t s) {
    const auto [a, b] = problem_.path.pairs[s];
    std::vector<int> batch, left, right;
    for (const int index : orders_[n_operands_ + s]) {
      const bool in_a = Holds(a, index);
      (in_a ? (Holds(b, index) ? batch : left) : right).push_back(index);
    }
    const std::vector<int> contracted = ContractedOrder(a, b, static_cast<int>(n_operands_ + s));
    if (IsFree(a)) orders_[a] = Concatenate(batch, left, contracted);
    if (IsFree(b)) orders_[b] = Concatenate(batch, contracted, right);
  }

  std::vector<int> ContractedOrder(int a, int b, int c) const {
    const auto is_contracted = [&](int index) {
      return Holds(a, index) && Holds(b, index) && !Holds(c, index);
    };
    const bool from_a = !IsFree(a) || (IsFree(b) && Elements(a) >= Elements(b));
    const int leading = from_a ? a : b;
    std::vector<int> order =
        IsOperand(leading) ? problem_.natural[leading] : problem_.indices[leading];
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

  static std::vector<int> Concatenate(const std::vector<int>& x, const std::vector<int>& y,
                                      const std::vector<int>& z) {
    std::vector<int> all = x;
    all.insert(all.end(), y.begin(), y.end());
    all.insert(all.end(), z.begin(), z.end());
    return all;
  }

  const AxisOrderProblem& problem_;
  const size_t n_operands_;
  std::vector<std::vector<int>> orders_;
};

}  // namespace

std::vector<std::vector<int>> ChooseAxisOrders(const AxisOrderProblem& problem) {
  return AxisOrderChoice(problem).Run();
}

}  // namespace tenon::contraction
