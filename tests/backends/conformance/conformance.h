// What every provider must do, through the interface the host uses: one suite for all of them.
//
// Any provider is run through it by the program provider_conformance:
//
//   provider_conformance --provider=cpu                      one that is built in (cpu, reference)
//   provider_conformance --provider=/path/libmine.so         a plug-in, by the symbol it exports
//   provider_conformance --provider=/path/libmine.so --options=TEXT
//
// `options` is the text that the provider's `create` gets. GoogleTest's own flags work as well. A
// provider that does no contraction, or not in some type, skips those tests, so that a suite that
// passes says what the provider does and that it does it right: results and errors of steps against
// nested loops, sums of slices, kept tensors, operand sets, concurrent workers, memory, statistics,
// cancellation, and calls that the host's own wrapper never makes.
//
// A provider that the build makes is added to the tests by one line of CMakeLists.txt:
//
//   tenon_conformance_test(mine $<TARGET_FILE:mine_plugin>)

#ifndef TENON_TESTS_BACKENDS_CONFORMANCE_CONFORMANCE_H_
#define TENON_TESTS_BACKENDS_CONFORMANCE_CONFORMANCE_H_

#include <string>

#include "backends/plugin/abi.h"

namespace tenon::testing {

struct ConformanceSubject {
  const tenon_provider_api* api = nullptr;  // static
  std::string options;
};

// The provider that the suite runs; set before the tests, once.
ConformanceSubject& Subject();

}  // namespace tenon::testing

#endif  // TENON_TESTS_BACKENDS_CONFORMANCE_CONFORMANCE_H_
