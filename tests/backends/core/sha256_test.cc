#include "backends/core/sha256.h"

#include <gtest/gtest.h>

#include <random>

namespace tenon {
namespace {

std::string HexOf(std::string_view bytes) {
  const auto digest = Sha256(bytes);
  return HexDigits(digest.data(), digest.size());
}

// The test vectors of FIPS 180.
TEST(Sha256, StandardVectors) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
                  "klmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(HexOf(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWhole) {
  std::mt19937_64 random(1);
  for (size_t length = 0; length < 300; ++length) {
    std::string message(length, '\0');
    for (char& byte : message) byte = static_cast<char>(random());
    Sha256Hasher hasher;
    for (size_t begin = 0; begin < length;) {
      const size_t count = random() % 100;
      hasher.Update(std::string_view(message).substr(begin, count));
      begin += count;
    }
    EXPECT_EQ(hasher.Finish(), Sha256(message)) << length;
  }
}

TEST(HexDigits, AreLowerCasePairs) {
  const uint8_t bytes[] = {0x00, 0x9f, 0xa0, 0xff};
  EXPECT_EQ(HexDigits(bytes, 4), "009fa0ff");
  EXPECT_EQ(HexDigits(bytes, 0), "");
}

}  // namespace
}  // namespace tenon
