#include "client/cpp/tool/npz.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "absl/strings/match.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/npy.h"

namespace tenon::tool {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocatorBytes = 20,
                 kEnd64Bytes = 56;
constexpr uint16_t kZip64Extra = 1;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kIsEncrypted = 1, kIsUtf8 = 1 << 11;
constexpr uint32_t kSaturated = 0xffffffff;
// Deflate makes no more than this of one byte.
constexpr uint64_t kMostExpansion = 1032;
constexpr uint64_t kMostDirectoryBytes = uint64_t{1} << 30;

template <typename T>
T Number(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = sizeof(T); i > 0; --i) {
    value = static_cast<T>(value << 8 | static_cast<unsigned char>(bytes[offset + i - 1]));
  }
  return value;
}
uint16_t U16(std::string_view bytes, size_t offset) { return Number<uint16_t>(bytes, offset); }
uint32_t U32(std::string_view bytes, size_t offset) { return Number<uint32_t>(bytes, offset); }
uint64_t U64(std::string_view bytes, size_t offset) { return Number<uint64_t>(bytes, offset); }

template <typename T>
void Put(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

Error Bad(const std::string& path, std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("'", path, "': ", what));
}

// `count` bytes from `offset` on, which lie in the file.
absl::Status ReadAt(const std::string& path, uint64_t offset, uint64_t count, char* to) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(to, static_cast<std::streamsize>(count));
  if (file.good()) return absl::OkStatus();
  return Bad(path, "it can't be read");
}

absl::StatusOr<std::string> ReadText(const std::string& path, uint64_t offset, uint64_t count) {
  std::string text(count, '\0');
  TENON_RETURN_IF_ERROR(ReadAt(path, offset, count, text.data()));
  return text;
}

// Inflates all of `packed` into all of `out`; false when they do not fit each other.
bool Inflate(std::string_view packed, Buffer* out) {
  constexpr size_t kStep = size_t{1} << 30;  // the counters have 32 bits
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  size_t in = 0, made = 0;
  const auto size = static_cast<size_t>(out->size_bytes());
  unsigned char none = 0;
  int result = Z_OK;
  while (result == Z_OK) {
    const size_t in_step = std::min(kStep, packed.size() - in);
    const size_t out_step = std::min(kStep, size - made);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + in));
    stream.avail_in = static_cast<uInt>(in_step);
    stream.next_out = size == 0 ? &none : out->as<Bytef>() + made;
    stream.avail_out = static_cast<uInt>(out_step);
    result = inflate(&stream, Z_NO_FLUSH);
    in += in_step - stream.avail_in;
    made += out_step - stream.avail_out;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && in == packed.size() && made == size;
}

uint32_t Crc(std::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// What local header and directory both say of a member, from the version on that is needed.
void AppendCommon(const std::string& name, std::string_view data, bool wide, std::string* to) {
  constexpr uint16_t kDate = 1 << 5 | 1;  // the first day that a ZIP file can tell
  Put<uint16_t>(wide ? 45 : 20, to);
  Put<uint16_t>(kIsUtf8, to);
  Put<uint16_t>(kStored, to);
  Put<uint16_t>(0, to);
  Put<uint16_t>(kDate, to);
  Put<uint32_t>(Crc(data), to);
  const uint32_t bytes = wide ? kSaturated : static_cast<uint32_t>(data.size());
  Put<uint32_t>(bytes, to);
  Put<uint32_t>(bytes, to);
  Put<uint16_t>(static_cast<uint16_t>(name.size()), to);
}

// The sizes in 64 bits, of a field of `bytes`.
void AppendWide(uint16_t bytes, uint64_t size, std::string* to) {
  Put<uint16_t>(kZip64Extra, to);
  Put<uint16_t>(bytes, to);
  Put<uint64_t>(size, to);
  Put<uint64_t>(size, to);
}

void AppendMember(const std::string& name, std::string_view data, uint64_t zip64_from,
                  std::string* out, std::string* directory) {
  const uint64_t offset = out->size();
  const bool wide = data.size() >= zip64_from || offset >= zip64_from;
  Put<uint32_t>(kLocalHeader, out);
  AppendCommon(name, data, wide, out);
  Put<uint16_t>(wide ? 20 : 0, out);
  *out += name;
  if (wide) AppendWide(16, data.size(), out);
  *out += data;

  Put<uint32_t>(kCentralHeader, directory);
  Put<uint16_t>(45, directory);  // version that made it
  AppendCommon(name, data, wide, directory);
  Put<uint16_t>(wide ? 28 : 0, directory);
  directory->append(10, '\0');  // no comment, the first disk, no attributes
  Put<uint32_t>(wide ? kSaturated : static_cast<uint32_t>(offset), directory);
  *directory += name;
  if (!wide) return;
  AppendWide(24, data.size(), directory);
  Put<uint64_t>(offset, directory);
}

// What follows the directory, which begins at `offset`.
void AppendEnd(uint64_t members, uint64_t offset, bool wide, std::string* directory) {
  const uint64_t bytes = directory->size();
  if (wide) {
    Put<uint32_t>(kEnd64, directory);
    Put<uint64_t>(kEnd64Bytes - 12, directory);
    Put<uint16_t>(45, directory);
    Put<uint16_t>(45, directory);
    Put<uint64_t>(0, directory);  // disks
    Put<uint64_t>(members, directory);
    Put<uint64_t>(members, directory);
    Put<uint64_t>(bytes, directory);
    Put<uint64_t>(offset, directory);
    Put<uint32_t>(kEnd64Locator, directory);
    Put<uint32_t>(0, directory);
    Put<uint64_t>(offset + bytes, directory);
    Put<uint32_t>(1, directory);
  }
  const uint16_t count = wide ? 0xffff : static_cast<uint16_t>(members);
  Put<uint32_t>(kEnd, directory);
  Put<uint32_t>(0, directory);
  Put<uint16_t>(count, directory);
  Put<uint16_t>(count, directory);
  Put<uint32_t>(wide ? kSaturated : static_cast<uint32_t>(bytes), directory);
  Put<uint32_t>(wide ? kSaturated : static_cast<uint32_t>(offset), directory);
  Put<uint16_t>(0, directory);
}

// Where the directory stands.
struct Directory {
  uint64_t members = 0, bytes = 0, offset = 0;
};

absl::StatusOr<Directory> FindDirectory(const std::string& path, uint64_t size_bytes) {
  const uint64_t tail_bytes = std::min<uint64_t>(size_bytes, kEndBytes + 65535 + kLocatorBytes);
  TENON_ASSIGN_OR_RETURN(const std::string tail,
                         ReadText(path, size_bytes - tail_bytes, tail_bytes));
  size_t end = tail.size() < kEndBytes ? std::string::npos : tail.size() - kEndBytes;
  while (end != std::string::npos &&
         !(U32(tail, end) == kEnd && end + kEndBytes + U16(tail, end + 20) == tail.size())) {
    end = end == 0 ? std::string::npos : end - 1;
  }
  if (end == std::string::npos) {
    return Bad(path, "it is no .npz file: the directory at its end is missing");
  }
  Directory directory = {U16(tail, end + 10), U32(tail, end + 12), U32(tail, end + 16)};
  const bool has_locator = end >= kLocatorBytes && U32(tail, end - kLocatorBytes) == kEnd64Locator;
  if (has_locator) {
    const uint64_t at = U64(tail, end - kLocatorBytes + 8);
    if (size_bytes < kEnd64Bytes || at > size_bytes - kEnd64Bytes) {
      return Bad(path, "its directory lies outside the file");
    }
    TENON_ASSIGN_OR_RETURN(const std::string end64, ReadText(path, at, kEnd64Bytes));
    if (U32(end64, 0) != kEnd64) return Bad(path, "its ZIP64 directory is damaged");
    directory = {U64(end64, 32), U64(end64, 40), U64(end64, 48)};
  }
  return directory;
}

}  // namespace

absl::StatusOr<NpzFile> NpzFile::Open(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return Error(Reason::kNotFound, StrCat("'", path, "' does not exist"));
  }
  if (!std::filesystem::is_regular_file(path, error)) return Bad(path, "it is no regular file");
  NpzFile file(path);
  file.size_bytes_ = std::filesystem::file_size(path, error);
  if (error) return Bad(path, error.message());
  TENON_RETURN_IF_ERROR(file.ReadDirectory());
  return file;
}

absl::Status NpzFile::ReadDirectory() {
  TENON_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(path_, size_bytes_));
  if (directory.bytes > size_bytes_ || directory.offset > size_bytes_ - directory.bytes ||
      directory.bytes > kMostDirectoryBytes) {
    return Bad(path_, "its directory lies outside the file");
  }
  TENON_ASSIGN_OR_RETURN(const std::string text,
                         ReadText(path_, directory.offset, directory.bytes));
  std::string_view rest = text;
  std::set<std::string> names;
  for (uint64_t i = 0; i < directory.members; ++i) {
    if (rest.size() < kCentralBytes || U32(rest, 0) != kCentralHeader) {
      return Bad(path_, "its directory is damaged");
    }
    const size_t bytes = kCentralBytes + U16(rest, 28) + U16(rest, 30) + U16(rest, 32);
    if (rest.size() < bytes) return Bad(path_, "its directory is damaged");
    TENON_ASSIGN_OR_RETURN(Member member, ParseMember(rest.substr(0, bytes)));
    rest.remove_prefix(bytes);
    if (!absl::EndsWith(member.name, ".npy")) continue;
    member.name.resize(member.name.size() - 4);
    if (!names.insert(member.name).second) {
      return Bad(path_, StrCat("it has two arrays '", member.name, "'"));
    }
    members_.push_back(std::move(member));
  }
  return absl::OkStatus();
}

absl::StatusOr<NpzFile::Member> NpzFile::ParseMember(std::string_view record) const {
  Member member;
  member.name = record.substr(kCentralBytes, U16(record, 28));
  member.method = U16(record, 10);
  member.crc = U32(record, 16);
  member.packed_bytes = U32(record, 20);
  member.bytes = U32(record, 24);
  member.offset = U32(record, 42);
  if ((U16(record, 8) & kIsEncrypted) != 0) {
    return Bad(path_, StrCat("'", member.name, "' is encrypted"));
  }
  std::string_view extra = record.substr(kCentralBytes + U16(record, 28), U16(record, 30));
  while (extra.size() >= 4) {
    const size_t bytes = U16(extra, 2);
    if (extra.size() < 4 + bytes) break;
    std::string_view field = extra.substr(4, bytes);
    if (U16(extra, 0) == kZip64Extra) {
      // Only the saturated ones stand here, in this order.
      for (uint64_t* value : {&member.bytes, &member.packed_bytes, &member.offset}) {
        if (*value != kSaturated || field.size() < 8) continue;
        *value = U64(field, 0);
        field.remove_prefix(8);
      }
    }
    extra.remove_prefix(4 + bytes);
  }
  return member;
}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

absl::StatusOr<Tensor> NpzFile::Read(const std::string& name) const {
  std::string known;
  for (const Member& member : members_) {
    if (member.name == name) {
      absl::StatusOr<Tensor> tensor = ReadMember(member);
      if (tensor.ok()) return tensor;
      return PrefixMessage(tensor.status(), StrCat("'", path_, "': array '", name, "': "));
    }
    known += StrCat(known.empty() ? "" : ", ", member.name);
  }
  return Error(Reason::kNotFound, StrCat("'", path_, "' has no array '", name, "', but ",
                                         known.empty() ? "none at all" : known));
}

absl::StatusOr<Tensor> NpzFile::ReadMember(const Member& member) const {
  const auto bad = [](const char* what) { return Error(Reason::kBadParameter, what); };
  if (size_bytes_ < kLocalBytes || member.offset > size_bytes_ - kLocalBytes) {
    return bad("it lies outside the file");
  }
  TENON_ASSIGN_OR_RETURN(const std::string local, ReadText(path_, member.offset, kLocalBytes));
  if (U32(local, 0) != kLocalHeader) return bad("its header is damaged");
  const uint64_t start = member.offset + kLocalBytes + U16(local, 26) + U16(local, 28);
  if (start > size_bytes_ || member.packed_bytes > size_bytes_ - start) {
    return bad("it lies outside the file");
  }
  if (member.method != kStored && member.method != kDeflated) {
    return bad("it is compressed in a way that is not supported; stored and deflated are");
  }
  if (member.method == kStored ? member.bytes != member.packed_bytes
                               : member.bytes / kMostExpansion > member.packed_bytes) {
    return bad("its size is wrong");
  }
  TENON_ASSIGN_OR_RETURN(Buffer data, Buffer::Allocate(static_cast<int64_t>(member.packed_bytes)));
  TENON_RETURN_IF_ERROR(ReadAt(path_, start, member.packed_bytes, data.as<char>()));
  if (member.method == kDeflated) {
    TENON_ASSIGN_OR_RETURN(Buffer whole, Buffer::Allocate(static_cast<int64_t>(member.bytes)));
    if (!Inflate(AsText(data), &whole)) return bad("its compressed data is damaged");
    data = std::move(whole);
  }
  if (Crc(AsText(data)) != member.crc) return bad("its checksum does not match");
  return ParseNpy(AsText(data));
}

absl::Status WriteNpzFile(const std::string& path,
                          const std::vector<std::pair<std::string, const Tensor*>>& arrays,
                          uint64_t zip64_from) {
  std::string out;
  std::string directory;
  for (const auto& [name, tensor] : arrays) {
    AppendMember(StrCat(name, ".npy"), FormatNpy(*tensor), zip64_from, &out, &directory);
  }
  const bool wide = out.size() >= zip64_from || arrays.size() >= 0xffff;
  AppendEnd(arrays.size(), out.size(), wide, &directory);
  return WriteFile(path, {out, directory});
}

bool IsNpz(const std::string& path) {
  return absl::EndsWith(path, ".npz") || absl::StrContains(path, ".npz:");
}

absl::StatusOr<std::vector<std::string>> ArraysIn(const std::string& path) {
  const size_t colon = path.find(".npz:");
  const std::string base = colon == std::string::npos ? path : path.substr(0, colon + 4);
  std::error_code error;
  if (!std::filesystem::exists(base, error)) {
    return Error(Reason::kNotFound, StrCat("'", base, "' does not exist"));
  }
  if (!absl::EndsWith(path, ".npz")) return std::vector<std::string>{path};
  TENON_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(path));
  std::vector<std::string> arrays;
  for (const std::string& name : file.names()) arrays.push_back(StrCat(path, ":", name));
  if (arrays.empty()) return Bad(path, "it has no arrays");
  return arrays;
}

absl::StatusOr<Tensor> LoadArrayFile(const std::string& path) {
  if (!IsNpz(path)) return ReadNpyFile(path);
  const size_t colon = path.find(".npz:");
  if (colon != std::string::npos) {
    TENON_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(path.substr(0, colon + 4)));
    return file.Read(path.substr(colon + 5));
  }
  TENON_ASSIGN_OR_RETURN(const NpzFile file, NpzFile::Open(path));
  const std::vector<std::string> names = file.names();
  if (names.size() == 1) return file.Read(names[0]);
  return Bad(path, StrCat("it has ", names.size(), " arrays; name one of them, such as '", path,
                          ":", names.empty() ? "NAME" : names[0], "'"));
}

absl::Status WriteArrayFile(const std::string& path, const std::string& name,
                            const Tensor& tensor) {
  if (absl::EndsWith(path, ".npz")) return WriteNpzFile(path, {{name, &tensor}});
  return WriteNpyFile(path, tensor);
}

}  // namespace tenon::tool
