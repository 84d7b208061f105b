// The search for the plan that is done first: what searches by several objectives find, ranked by
// what the compiled programs are predicted to take.

#ifndef TENON_BACKENDS_PLANNER_SECONDS_SEARCH_H_
#define TENON_BACKENDS_PLANNER_SECONDS_SEARCH_H_

#include "absl/status/statusor.h"
#include "backends/planner/search.h"

namespace tenon::planner {

// Whether the options ask for the search below.
bool RanksBySeconds(const SearchOptions& options);

// As Search. The model of steps knows sizes alone, and layouts and kernels make up to twice the
// difference; so plans that do little arithmetic or move little are candidates, too. The budget of
// trials and seconds is for all of it together.
absl::StatusOr<FoundPlan> SearchBySeconds(const contraction::Expression& expression,
                                          const SearchOptions& options, const CancelToken* cancel,
                                          const OnImprovement& on_improvement);

}  // namespace tenon::planner

#endif  // TENON_BACKENDS_PLANNER_SECONDS_SEARCH_H_
