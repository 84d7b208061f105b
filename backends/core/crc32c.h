// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected), as in RFC 3720: the checksum of chunks.

#ifndef TENON_BACKENDS_CORE_CRC32C_H_
#define TENON_BACKENDS_CORE_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon {

// The checksum of what has the checksum `crc` followed by `bytes` bytes at `data`; 0 is the
// checksum of nothing. Uses the processor's instruction where it has one.
uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t bytes);

inline uint32_t Crc32c(std::string_view data) { return ExtendCrc32c(0, data.data(), data.size()); }

namespace crc32c_internal {
// The two implementations, for tests. The hardware one needs HasHardware().
bool HasHardware();
uint32_t ExtendPortable(uint32_t crc, const void* data, size_t bytes);
uint32_t ExtendHardware(uint32_t crc, const void* data, size_t bytes);
}  // namespace crc32c_internal

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_CRC32C_H_
