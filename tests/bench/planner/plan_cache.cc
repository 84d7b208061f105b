// What a plan cache's answer costs: the key, and the lookup, per network.
#include "backends/planner/plan_cache.h"

#include <chrono>
#include <cstdio>

#include "backends/planner/random.h"

using namespace tenon;
using namespace tenon::planner;

namespace {

// Tensors of four indices, each on two of them.
contraction::Expression RandomRegular(int tensors) {
  constexpr int kDegree = 4;
  Random random(1, tensors);
  std::vector<int> ends;
  for (int e = 0; e < tensors * kDegree; ++e) ends.push_back(e / 2);
  for (size_t i = ends.size(); i > 1; --i) {
    std::swap(ends[i - 1], ends[random.Below(static_cast<int>(i))]);
  }
  contraction::Expression expression;
  std::vector<int> number(ends.size() / 2, -1);
  for (int t = 0; t < tensors; ++t) {
    std::vector<int>& input = expression.inputs.emplace_back();
    for (int i = 0; i < kDegree; ++i) {
      int& index = number[ends[t * kDegree + i]];
      if (index < 0) {
        index = static_cast<int>(expression.sizes.size());
        expression.sizes.push_back(2 + random.Below(500));
      }
      input.push_back(index);
    }
  }
  return expression;
}

}  // namespace

int main() {
  for (const int tensors : {2, 4, 8, 30, 100, 500, 3000}) {
    const contraction::Expression expression = RandomRegular(tensors);
    SearchOptions options;
    options.target_elements = int64_t{1} << 27;
    options.memory_bytes = int64_t{8} << 30;
    PlanCache cache(int64_t{64} << 20);
    for (int other = 0; other < 1000; ++other) {  // not an empty table
      options.seed = other;
      cache.Put(MakePlanKey(expression, options, "cpu complex64 8 threads"), {});
    }
    const int rounds = 4000000 / (tensors + 20);
    double best_key = 1e9, best_both = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const bool find : {false, true}) {
        const auto start = std::chrono::steady_clock::now();
        size_t bytes = 0;
        for (int round = 0; round < rounds; ++round) {
          options.seed = round % 1000;
          const PlanKey key = MakePlanKey(expression, options, "cpu complex64 8 threads");
          bytes += key.bytes.size();
          if (find && cache.Find(key) == nullptr) return 1;
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        double& best = find ? best_both : best_key;
        best = std::min(best, took.count() / rounds);
        if (bytes == 0) return 1;
      }
    }
    printf("%5d tensors: key of %5zu bytes %7.3f us, key and lookup %7.3f us\n", tensors,
           MakePlanKey(expression, options, "cpu complex64 8 threads").bytes.size(), best_key * 1e6,
           best_both * 1e6);
  }
}
