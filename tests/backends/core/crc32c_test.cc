#include "backends/core/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace tenon {
namespace {

// One bit at a time, as the polynomial says.
uint32_t Bitwise(const std::string& data) {
  uint32_t crc = ~0u;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1)));
  }
  return ~crc;
}

std::string Pattern(size_t bytes) {
  std::string data(bytes, '\0');
  uint32_t state = 12345;
  for (char& c : data) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return data;
}

// RFC 3720, B.4, and the usual check value.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ascending(32, '\0');
  for (int i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(Crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(Crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113FDB5Cu);
}

TEST(Crc32c, BothImplementationsFollowTheDefinition) {
  for (const size_t bytes : {1, 7, 8, 9, 63, 2048, 6143, 6144, 6145, 20000}) {
    const std::string data = Pattern(bytes);
    EXPECT_EQ(crc32c_internal::ExtendPortable(0, data.data(), bytes), Bitwise(data)) << bytes;
    if (crc32c_internal::HasHardware()) {
      EXPECT_EQ(crc32c_internal::ExtendHardware(0, data.data(), bytes), Bitwise(data)) << bytes;
    }
  }
}

TEST(Crc32c, PartsExtendToTheWhole) {
  const std::string data = Pattern(15000);
  for (const size_t cut : {0, 1, 8, 4096, 14999, 15000}) {
    const uint32_t first = Crc32c(std::string_view(data).substr(0, cut));
    EXPECT_EQ(ExtendCrc32c(first, data.data() + cut, data.size() - cut), Crc32c(data)) << cut;
  }
}

}  // namespace
}  // namespace tenon
