#include "backends/contraction/fingerprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "backends/contraction/program.h"
#include "tests/backends/contraction/test_networks.h"

namespace tenon::contraction {
namespace {

struct Case {
  Network network =
      testing::NetworkOf({"ab", "bc", "cd"}, "ad", {{"a", 2}, {"b", 3}, {"c", 4}, {"d", 5}});
  Path path{{{0, 1}, {3, 2}}};
  std::vector<int> sliced = {1};
  LoweringOptions options;
};

std::string Fingerprint(const Case& c) {
  const auto program = LowerProgram(testing::ExpressionOf(c.network), c.path, c.sliced, c.options);
  EXPECT_TRUE(program.ok()) << program.status();
  return (*program)->FingerprintHex();
}

TEST(FingerprintProgram, DependsOnEverythingThatDecidesBits) {
  const std::vector<std::function<void(Case&)>> changes = {
      [](Case&) {},
      [](Case& c) { c.network.sizes["d"] = 6; },
      [](Case& c) {
        c.network.output = {"d", "a"};
      },
      [](Case& c) {
        c.path = {{{1, 0}, {3, 2}}};
      },
      [](Case& c) {
        c.path = {{{1, 2}, {0, 3}}};
      },
      [](Case& c) { c.sliced = {}; },
      [](Case& c) {
        c.sliced = {1, 2};
      },
      [](Case& c) { c.options.dtype = DType::kFloat32; },
      [](Case& c) { c.options.accumulate_double = true; },
      [](Case& c) { c.options.normalize = true; },
  };
  std::set<std::string> fingerprints;
  for (const auto& change : changes) {
    Case c;
    change(c);
    fingerprints.insert(Fingerprint(c));
  }
  EXPECT_EQ(fingerprints.size(), changes.size());
}

TEST(FingerprintProgram, NamesDoNotMatter) {
  Case renamed;
  renamed.network =
      testing::NetworkOf({"wx", "xy", "yz"}, "wz", {{"w", 2}, {"x", 3}, {"y", 4}, {"z", 5}});
  EXPECT_EQ(Fingerprint(Case()), Fingerprint(renamed));
  EXPECT_EQ(Fingerprint(Case()).size(), 64u);
}

TEST(FingerprintProgram, OrderOfTheSlicedSetDoesNotMatter) {
  Case one, other;
  one.sliced = {1, 2};
  other.sliced = {2, 1};
  EXPECT_EQ(Fingerprint(one), Fingerprint(other));
}

TEST(FingerprintProgram, CountsTheGroupSize) {
  const Case c;
  const auto program = LowerProgram(testing::ExpressionOf(c.network), c.path, c.sliced, c.options);
  const tenon_program& descriptor = (*program)->descriptor();
  EXPECT_NE(FingerprintProgram(descriptor, 1), FingerprintProgram(descriptor, 2));
}

// A golden value: it changes only with the serialisation or the lowering, which then must be meant.
TEST(FingerprintProgram, IsStable) {
  EXPECT_EQ(Fingerprint(Case()),
            "ec2a7aee3c085e24b4e5d89b000a3878f8bc68c08d81d385e532c22974f5c5f8");
}

}  // namespace
}  // namespace tenon::contraction
