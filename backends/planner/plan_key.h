// The identity of a planning question: what decides the plan that answers it.

#ifndef TENON_BACKENDS_PLANNER_PLAN_KEY_H_
#define TENON_BACKENDS_PLANNER_PLAN_KEY_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/contraction/expression.h"
#include "backends/planner/search.h"

namespace tenon::planner {

// Equal questions have equal bytes, on every machine; others have others.
struct PlanKey {
  std::string bytes;
  std::array<uint64_t, 2> hash;  // of the bytes; not cryptographic, and by byte order
};

// Names don't matter, since an expression numbers its indices by first appearance; the order of
// tensors and axes does. Of the options those count that can change the plan: the objective with
// its weights or its time model's values, limits, what may be sliced and how (only under a limit),
// methods, seed, trials, seconds, whether to simplify, and the initial plan. Threads don't.
// `context` tells what SearchOptions::planned_bytes and predicted_seconds depend on besides the
// plan (element type, provider, threads of a run, sets); it counts where they do: with a memory
// limit, and for the objective of seconds.
// Plans with different `owner`s are kept apart: nobody is told what another one has searched.
PlanKey MakePlanKey(const contraction::Expression& expression, const SearchOptions& options,
                    std::string_view context, std::string_view owner = "");

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_PLAN_KEY_H_
