// Runs hand-built programs on a provider and compares with the oracle.

#ifndef TENON_TESTS_BACKENDS_CONFORMANCE_PROVIDER_RUN_H_
#define TENON_TESTS_BACKENDS_CONFORMANCE_PROVIDER_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/plugin/provider.h"
#include "tests/backends/conformance/test_program.h"

namespace tenon::testing {

// A warm provider from its table.
std::shared_ptr<plugin::Provider> MakeProvider(const tenon_provider_api* api,
                                               const std::string& options = "");

// Compiles for `threads` threads; fails the test when refused.
std::unique_ptr<plugin::Compiled> CompileOrDie(plugin::Provider& provider,
                                               const tenon_program& program, int threads = 1);

std::vector<const void*> Pointers(const std::vector<TestTensor>& operands);

// Operands of a program: random numbers.
std::vector<TestTensor> RandomOperands(const tenon_program& program, uint64_t seed);

struct RunOptions {
  int workers = 1;
  int threads_per_worker = 1;
  int worker = 0;
  int64_t block = 0;
  int64_t first_slice = 0;
  int64_t last_slice = -1;  // -1: all slices of the block
};

// The bytes of one group's partial sum. Memory starts as NaN, so that what is not written shows.
absl::StatusOr<std::vector<char>> RunGroup(plugin::Compiled& compiled, const tenon_program& program,
                                           const std::vector<TestTensor>& operands,
                                           const RunOptions& options = {});

// Fails the test unless `bytes` are what the oracle gives, up to the rounding of sums of
// `terms` products. Only elements that some step writes are compared.
void ExpectOracle(const tenon_program& program, const std::vector<TestTensor>& operands,
                  const std::vector<char>& bytes, int64_t terms, const RunOptions& options = {});

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONFORMANCE_PROVIDER_RUN_H_
