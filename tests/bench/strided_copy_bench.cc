// Speeds of StridedCopy beside those of plain copies. Bytes read and bytes written both count.
//   strided_copy_bench [part of a section's name]

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/strided_copy.h"

namespace tenon::cpu {
namespace {

constexpr int64_t kLargest = 256 << 20;

// Memory in huge pages, touched.
char* NewBuffer(int64_t bytes) {
  constexpr size_t kHugePage = 2 << 20;
  void* memory = std::aligned_alloc(kHugePage, static_cast<size_t>(bytes));
  if (memory == nullptr) std::abort();
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::memset(memory, 1, static_cast<size_t>(bytes));
  return static_cast<char*>(memory);
}

struct Buffers {
  char* source = NewBuffer(kLargest);
  char* target = NewBuffer(kLargest);
};

// Median seconds of a call.
double Seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  Clock::time_point start = Clock::now();
  call();
  const double first = seconds_since(start);
  const int calls = std::clamp(static_cast<int>(2e-3 / std::max(first, 1e-9)), 1, 100000);
  std::vector<double> samples;
  for (int sample = 0; sample < 5; ++sample) {
    start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    samples.push_back(seconds_since(start) / calls);
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

double Rate(int64_t bytes, double seconds) { return 2e-9 * static_cast<double>(bytes) / seconds; }

int64_t BytesOf(const std::vector<CopyLoop>& loops, int64_t element) {
  int64_t bytes = element;
  for (const CopyLoop& loop : loops) bytes *= loop.extent;
  return bytes;
}

struct Measured {
  double one, two;  // rates with one thread and with two
};

Measured Measure(const std::vector<CopyLoop>& loops, int64_t element, const Buffers& buffers) {
  const StridedCopy copy(loops, element);
  const int64_t bytes = BytesOf(loops, element);
  ThreadTeam team(2, nullptr, 0);
  return {Rate(bytes, Seconds([&] { copy.Run(buffers.source, buffers.target); })),
          Rate(bytes, Seconds([&] { copy.Run(buffers.source, buffers.target, team, nullptr); }))};
}

// Loops of a permutation: mode i of the target (outermost first) is mode order[i] of the source.
std::vector<CopyLoop> Permutation(const std::vector<int64_t>& extents,
                                  const std::vector<size_t>& order) {
  std::vector<CopyLoop> loops;
  for (const int64_t extent : extents) loops.push_back({extent, 0, 0});
  int64_t next = 1;
  for (size_t i = extents.size(); i-- > 0; next *= extents[i]) loops[i].source = next;
  next = 1;
  for (size_t i = order.size(); i-- > 0; next *= extents[order[i]]) loops[order[i]].target = next;
  return loops;
}

std::vector<size_t> RandomOrder(size_t n, std::mt19937& random) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

void PlainCopies(const Buffers& buffers) {
  constexpr int64_t kBytes = 128 << 20;
  for (const int threads : {1, 2}) {
    ThreadTeam team(threads, nullptr, 0);
    const double seconds = Seconds([&] {
      team.For(kBytes, kBytes / threads, [&](int64_t begin, int64_t end, Scratch) {
        std::memcpy(buffers.target + begin, buffers.source + begin,
                    static_cast<size_t>(end - begin));
      });
    });
    std::printf("memcpy of 128 MiB, %d threads: %.1f GB/s\n", threads, Rate(kBytes, seconds));
  }
  const Measured run = Measure({{kBytes / 8, 1, 1}}, 8, buffers);
  std::printf("one run of 128 MiB: %.1f GB/s, 2 threads %.1f\n", run.one, run.two);
}

void Print(const char* name, std::vector<Measured> all) {
  if (all.empty()) return;
  std::printf("%-34s n %2zu", name, all.size());
  for (double Measured::*rate : {&Measured::one, &Measured::two}) {
    std::sort(all.begin(), all.end(),
              [rate](const Measured& x, const Measured& y) { return x.*rate < y.*rate; });
    std::printf("  %s %5.1f / %5.1f / %5.1f", rate == &Measured::one ? "1T" : "2T",
                all.front().*rate, all[all.size() / 2].*rate, all.back().*rate);
  }
  std::printf("\n");
}

// Random permutations of modes of two, by whether the modes of a line overlap.
void Binary(int64_t element, size_t modes, int rounds, const Buffers& buffers) {
  std::mt19937 random(7);
  std::vector<Measured> disjoint, overlapping;
  size_t line_modes = 0;
  while (element << line_modes < 64) ++line_modes;
  for (int round = 0; round < rounds; ++round) {
    const std::vector<size_t> order = RandomOrder(modes, random);
    const bool overlaps = std::any_of(order.end() - static_cast<int64_t>(line_modes), order.end(),
                                      [&](size_t mode) { return mode >= modes - line_modes; });
    (overlaps ? overlapping : disjoint)
        .push_back(Measure(Permutation(std::vector<int64_t>(modes, 2), order), element, buffers));
  }
  const std::string name =
      std::to_string(modes) + " binary modes of " + std::to_string(element) + " bytes";
  Print((name + ", disjoint").c_str(), disjoint);
  Print((name + ", overlap").c_str(), overlapping);
}

void PermutationsOf(const char* name, const std::vector<int64_t>& extents, int64_t element,
                    const Buffers& buffers) {
  std::mt19937 random(11);
  std::vector<Measured> all;
  for (int round = 0; round < 10; ++round) {
    all.push_back(
        Measure(Permutation(extents, RandomOrder(extents.size(), random)), element, buffers));
  }
  Print(name, all);
}

void Large(const Buffers& buffers) {
  for (const int64_t element : {8, 16, 4}) Binary(element, 24, 15, buffers);
  const std::vector<int64_t> cube(4, 64);
  Print("64^4 double (2,3,0,1)", {Measure(Permutation(cube, {2, 3, 0, 1}), 8, buffers)});
  Print("64^4 double (3,2,1,0)", {Measure(Permutation(cube, {3, 2, 1, 0}), 8, buffers)});
  PermutationsOf("10^7 complex64", std::vector<int64_t>(7, 10), 8, buffers);
  PermutationsOf("3^15 complex64", std::vector<int64_t>(15, 3), 8, buffers);
  PermutationsOf("5^10 float", std::vector<int64_t>(10, 5), 4, buffers);
  PermutationsOf("4^11 complex128", std::vector<int64_t>(11, 4), 16, buffers);
  PermutationsOf("192x64x17x8x4x3 double", {192, 64, 17, 8, 4, 3}, 8, buffers);
}

// A transpose of rows x columns, each beginning at a multiple of `source` and `target` elements.
void Matrix(int64_t element, int64_t rows, int64_t columns, const Buffers& buffers) {
  const StridedCopy copy({{rows, columns, 1}, {columns, 1, rows}}, element);
  const double seconds = Seconds([&] { copy.Run(buffers.source, buffers.target); });
  std::printf("%5ld x %5ld of %2ld bytes: %6.1f GB/s %9.0f ns  %s\n", rows, columns, element,
              Rate(rows * columns * element, seconds), 1e9 * seconds, copy.Describe().c_str());
}

void Tiles(const Buffers& buffers) {
  const int64_t sizes[][2] = {{4, 4},     {8, 8},     {3, 5},     {10, 10},   {16, 16},
                              {32, 32},   {64, 64},   {100, 100}, {256, 256}, {16, 4096},
                              {4096, 16}, {4096, 4},  {4, 4096},  {3, 4096},  {4096, 3},
                              {2, 8192},  {250, 250}, {192, 192}};
  for (const int64_t element : {8, 16, 4}) {
    for (const auto& size : sizes) Matrix(element, size[0], size[1], buffers);
  }
  for (const int64_t element : {8, 16, 4}) {
    for (const size_t modes : {6, 8, 11, 14, 16}) Binary(element, modes, 20, buffers);
  }
  for (const int64_t run : {1, 2, 3, 4, 6, 8, 12, 16, 32, 64}) {
    const int64_t count = 65536 / (8 * run);
    const StridedCopy copy({{count, 3 * run, run}, {run, 1, 1}}, 8);
    const double seconds = Seconds([&] { copy.Run(buffers.source, buffers.target); });
    std::printf("runs of %3ld bytes: %6.1f GB/s\n", 8 * run, Rate(count * run * 8, seconds));
  }
}

void Sizes(const Buffers& buffers) {
  for (size_t modes = 16; modes <= 24; ++modes) Binary(8, modes, 10, buffers);
}

void Construction(const Buffers&) {
  std::mt19937 random(5);
  const auto time = [](const char* name, const std::vector<std::vector<CopyLoop>>& all) {
    const double seconds = Seconds([&] {
      for (const std::vector<CopyLoop>& loops : all) const StridedCopy copy(loops, 8);
    });
    std::printf("construction, %s: %.2f us\n", name,
                1e6 * seconds / static_cast<double>(all.size()));
  };
  for (const size_t modes : {24, 10, 4}) {
    std::vector<std::vector<CopyLoop>> all;
    for (int i = 0; i < 20; ++i) {
      all.push_back(Permutation(std::vector<int64_t>(modes, 2), RandomOrder(modes, random)));
    }
    time((std::to_string(modes) + " binary modes").c_str(), all);
  }
  time("8 x 8", {{{8, 8, 1}, {8, 1, 8}}});
  time("100 x 100", {{{100, 100, 1}, {100, 1, 100}}});
  time("10^7", {Permutation(std::vector<int64_t>(7, 10), RandomOrder(7, random))});
  time("3^15", {Permutation(std::vector<int64_t>(15, 3), RandomOrder(15, random))});
  time("run", {{{1000, 1, 1}}});
}

}  // namespace
}  // namespace tenon::cpu

int main(int argc, char** argv) {
  using tenon::cpu::Buffers;
  const std::string wanted = argc > 1 ? argv[1] : "";
  const std::pair<const char*, void (*)(const Buffers&)> sections[] = {
      {"plain", tenon::cpu::PlainCopies},
      {"large", tenon::cpu::Large},
      {"sizes", tenon::cpu::Sizes},
      {"tiles", tenon::cpu::Tiles},
      {"construction", tenon::cpu::Construction}};
  const Buffers buffers;
  for (const auto& [name, run] : sections) {
    if (std::string(name).find(wanted) != std::string::npos) run(buffers);
  }
}
