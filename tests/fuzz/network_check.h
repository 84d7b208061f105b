// What holds for every network that a parser accepts, whatever is in it.

#ifndef TENON_TESTS_FUZZ_NETWORK_CHECK_H_
#define TENON_TESTS_FUZZ_NETWORK_CHECK_H_

#include <optional>
#include <string>
#include <vector>

#include "backends/core/network.h"
#include "backends/core/plan_file.h"

namespace tenon::fuzz {

// Makes the expression of `network` and, if it is valid, follows the path (or the greedy one) with
// the slices through everything that only counts: nothing is computed. Large networks are left
// alone, because this takes more than linear time.
void CheckNetwork(const Network& network, const std::optional<PathSteps>& path,
                  const std::vector<std::string>& sliced);

// The file is written, and what is written is read back as the same file.
void CheckPrintsAndParses(const PlanFile& plan);

}  // namespace tenon::fuzz

#endif  // TENON_TESTS_FUZZ_NETWORK_CHECK_H_
