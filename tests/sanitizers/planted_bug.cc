// One bug of each kind that a sanitizer is there to find: planted_bug KIND. Without it nothing is
// wrong. A sanitized build must report what is planted, and fail.

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

namespace {

// What the compiler must not know.
volatile int zero = 0;

int HeapOverflow() {
  const auto numbers = std::make_unique<int[]>(10);
  return numbers[10 + zero];
}

int UseAfterFree() {
  auto number = std::make_unique<int>(3);
  const int* address = number.get();
  number.reset();
  return *address;
}

int SignedOverflow() { return INT_MAX - zero + 1; }

int MisalignedAccess() {
  alignas(8) char bytes[16] = {};
  return static_cast<int>(*reinterpret_cast<int64_t*>(bytes + 1 + zero));
}

// Several, because the address of the last may still lie about.
int Leak() {
  static int* volatile last;
  for (int i = 0; i < 10; ++i) last = new int[100];
  last = nullptr;
  return last != nullptr;
}

// The same by a name that suppressions.cc lists.
int SuppressedLeak() {
  static int* volatile last;
  for (int i = 0; i < 10; ++i) last = new int[100];
  last = nullptr;
  return last != nullptr;
}

// Two threads write, one after the other, but nothing orders them.
int DataRace() {
  int number = 0;
  std::atomic<bool> is_written = false;
  std::thread first([&] {
    number = 1;
    is_written.store(true, std::memory_order_relaxed);
  });
  std::thread second([&] {
    while (!is_written.load(std::memory_order_relaxed)) std::this_thread::yield();
    number = 2;
  });
  first.join();
  second.join();
  return number - 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  int sum = 0;
  if (kind == "heap_overflow") sum = HeapOverflow();
  if (kind == "use_after_free") sum = UseAfterFree();
  if (kind == "signed_overflow") sum = SignedOverflow();
  if (kind == "misaligned_access") sum = MisalignedAccess();
  if (kind == "leak") sum = Leak();
  if (kind == "suppressed_leak") sum = SuppressedLeak();
  if (kind == "data_race") sum = DataRace();
  std::cout << "not stopped: " << sum << "\n";
  return 0;
}
