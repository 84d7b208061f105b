#include "backends/core/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tenon {
namespace crc32c_internal {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected
constexpr size_t kTables = 8;

// table[t][b]: the effect of byte b followed by t zero bytes.
constexpr std::array<std::array<uint32_t, 256>, kTables> MakeTables() {
  std::array<std::array<uint32_t, 256>, kTables> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t t = 1; t < kTables; ++t) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[t - 1][byte];
      tables[t][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
    }
  }
  return tables;
}
constexpr auto kTable = MakeTables();

#if defined(__x86_64__)
// The instruction has a latency of three cycles and a throughput of one, so three lanes run side by
// side; their checksums are joined by shifting over the bytes that follow.
constexpr size_t kLaneBytes = 2048;

// shift[t][b]: the effect of byte t of a checksum, with value b, after kLaneBytes zero bytes.
std::array<std::array<uint32_t, 256>, 4> MakeLaneShift() {
  std::array<std::array<uint32_t, 256>, 4> shift{};
  for (size_t t = 0; t < 4; ++t) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte << (8 * t);
      for (size_t i = 0; i < kLaneBytes; ++i) crc = (crc >> 8) ^ kTable[0][crc & 0xFF];
      shift[t][byte] = crc;
    }
  }
  return shift;
}

uint32_t ShiftLane(uint32_t crc) {
  static const auto& shift = *new auto(MakeLaneShift());
  return shift[0][crc & 0xFF] ^ shift[1][(crc >> 8) & 0xFF] ^ shift[2][(crc >> 16) & 0xFF] ^
         shift[3][crc >> 24];
}

uint64_t Load64(const unsigned char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
#endif

}  // namespace

uint32_t ExtendPortable(uint32_t crc, const void* data, size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, next += 8) {
    uint32_t low, high;
    std::memcpy(&low, next, 4);
    std::memcpy(&high, next + 4, 4);
    low ^= crc;
    crc = kTable[7][low & 0xFF] ^ kTable[6][(low >> 8) & 0xFF] ^ kTable[5][(low >> 16) & 0xFF] ^
          kTable[4][low >> 24] ^ kTable[3][high & 0xFF] ^ kTable[2][(high >> 8) & 0xFF] ^
          kTable[1][(high >> 16) & 0xFF] ^ kTable[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++next) crc = (crc >> 8) ^ kTable[0][(crc ^ *next) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)
bool HasHardware() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) uint32_t ExtendHardware(uint32_t crc, const void* data,
                                                          size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  uint64_t first = static_cast<uint32_t>(~crc);
  for (; bytes >= 3 * kLaneBytes; bytes -= 3 * kLaneBytes, next += 3 * kLaneBytes) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      first = _mm_crc32_u64(first, Load64(next + i));
      second = _mm_crc32_u64(second, Load64(next + kLaneBytes + i));
      third = _mm_crc32_u64(third, Load64(next + 2 * kLaneBytes + i));
    }
    first = ShiftLane(static_cast<uint32_t>(first)) ^ second;
    first = ShiftLane(static_cast<uint32_t>(first)) ^ third;
  }
  for (; bytes >= 8; bytes -= 8, next += 8) first = _mm_crc32_u64(first, Load64(next));
  auto result = static_cast<uint32_t>(first);
  for (; bytes > 0; --bytes, ++next) result = _mm_crc32_u8(result, *next);
  return ~result;
}
#else
bool HasHardware() { return false; }

uint32_t ExtendHardware(uint32_t crc, const void* data, size_t bytes) {
  return ExtendPortable(crc, data, bytes);
}
#endif

}  // namespace crc32c_internal

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes) {
  static const bool hardware = crc32c_internal::HasHardware();
  return hardware ? crc32c_internal::ExtendHardware(crc, data, bytes)
                  : crc32c_internal::ExtendPortable(crc, data, bytes);
}

}  // namespace tenon
