// How benchmarks take what can't be had: they say why and end.

#ifndef TENON_TESTS_BENCH_CONTRACTION_OR_DIE_H_
#define TENON_TESTS_BENCH_CONTRACTION_OR_DIE_H_

#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/status/statusor.h"

namespace tenon::bench {

inline void OrDie(const absl::Status& status) {
  if (status.ok()) return;
  std::cerr << status << "\n";
  std::exit(1);
}

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  OrDie(value.status());
  return *std::move(value);
}

}  // namespace tenon::bench

#endif  // TENON_TESTS_BENCH_CONTRACTION_OR_DIE_H_
