// SHA-256 (FIPS 180-4): content identities of programs and data sets.

#ifndef TENON_BACKENDS_CORE_SHA256_H_
#define TENON_BACKENDS_CORE_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenon {

// Hashes a message that comes in pieces. Not thread-safe.
class Sha256Hasher {
 public:
  void Update(std::string_view bytes);
  // The digest of all bytes so far; the hasher must not be used after it.
  std::array<uint8_t, 32> Finish();

 private:
  static constexpr size_t kBlockBytes = 64;
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlockBytes> buffer_{};
  size_t buffered_ = 0;  // bytes in buffer_
  uint64_t total_bytes_ = 0;
};

// The digest of `bytes`.
std::array<uint8_t, 32> Sha256(std::string_view bytes);

// Two lower-case hexadecimal digits per byte.
std::string HexDigits(const uint8_t* bytes, size_t count);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_SHA256_H_
