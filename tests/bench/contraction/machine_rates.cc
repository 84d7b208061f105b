#include "tests/bench/contraction/machine_rates.h"

#include <sys/mman.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backends/cpu/blas.h"
#include "backends/cpu/scalar.h"

namespace tenon::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Memory in huge pages, touched by the thread that makes it.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(data_, bytes, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
  size_t bytes_;
};

// The shortest of `rounds` rounds in which every thread does its share once. `make` prepares a
// thread's share on that thread.
double BestSeconds(int threads, int rounds,
                   const std::function<std::function<void()>(int thread)>& make) {
  std::barrier barrier(threads);
  double best = 1e30;
  std::vector<std::jthread> team;
  for (int t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      const std::function<void()> work = make(t);
      for (int round = 0; round < rounds; ++round) {
        barrier.arrive_and_wait();
        const Clock::time_point start = Clock::now();
        work();
        barrier.arrive_and_wait();
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        if (t == 0) best = std::min(best, seconds);
      }
    });
  }
  team.clear();
  return best;
}

void CopyStreaming(const std::byte* source, std::byte* target, size_t bytes) {
#if defined(__x86_64__)
  const auto* from = reinterpret_cast<const __m128i*>(source);
  auto* to = reinterpret_cast<__m128i*>(target);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i) {
    _mm_stream_si128(to + i, _mm_load_si128(from + i));
  }
  _mm_sfence();
#else
  std::memcpy(target, source, bytes);
#endif
}

// Bytes read and written per second by copies of `bytes` per thread.
double CopyRate(int threads, size_t bytes, bool streaming) {
  const int repeats = static_cast<int>(std::max<size_t>(1, (size_t{64} << 20) / bytes));
  const double seconds = BestSeconds(threads, 5, [&](int) -> std::function<void()> {
    auto source = std::make_shared<Pages>(bytes), target = std::make_shared<Pages>(bytes);
    return [=] {
      for (int i = 0; i < repeats; ++i) {
        if (streaming) {
          CopyStreaming(source->data(), target->data(), bytes);
        } else {
          std::memcpy(target->data(), source->data(), bytes);
        }
      }
    };
  });
  return 2.0 * static_cast<double>(bytes) * repeats * threads / seconds;
}

template <typename T>
double GemmRate(int threads, double flops_per_term) {
  constexpr int64_t kSide = sizeof(T) == 16 ? 768 : 1024;
  const double seconds = BestSeconds(threads, 7, [](int) -> std::function<void()> {
    auto a = std::make_shared<std::vector<T>>(kSide * kSide, T{1});
    auto b = std::make_shared<std::vector<T>>(kSide * kSide, T{1});
    auto c = std::make_shared<std::vector<T>>(kSide * kSide);
    return [=] {
      const cpu::MatrixLayout layout = {false, kSide};
      cpu::MatrixProduct<T>(kSide, kSide, kSide, a->data(), layout, b->data(), layout, false,
                            c->data(), layout);
    };
  });
  return flops_per_term * threads * static_cast<double>(kSide * kSide * kSide) / seconds;
}

}  // namespace

MachineRates MeasureRates(DType dtype, int threads) {
  cpu::InitializeBlas();
  MachineRates rates;
  rates.gemm_flops = cpu::DispatchDType(static_cast<int32_t>(dtype), [&](auto type) {
    using T = typename decltype(type)::type;
    return GemmRate<T>(threads, IsComplex(dtype) ? 8 : 2);
  });
  rates.copy_bytes = CopyRate(threads, size_t{128} << 20, /*streaming=*/true);
  rates.cached_copy_bytes = CopyRate(threads, size_t{1} << 20, /*streaming=*/false);
  return rates;
}

}  // namespace tenon::bench
