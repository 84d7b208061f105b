#include "server/frames.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <string>
#include <utility>

#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr size_t kSmallFrameBytes = 4096;
constexpr size_t kMostFrameBytes = size_t{1} << 30;  // protobuf takes a little less than the double

// Of the wire format.
enum WireType { kVarint = 0, kDelimited = 2, kFixed32 = 5 };
constexpr uint8_t Tag(int field, WireType type) { return static_cast<uint8_t>(field << 3 | type); }

// Reads a frame from front to back. All that may fail returns false and leaves it unusable.
class PieceReader {
 public:
  explicit PieceReader(std::span<const std::string_view> pieces) : rest_(pieces) {
    for (const std::string_view piece : pieces) left_ += piece.size();
  }

  size_t left() const { return left_; }

  bool ReadByte(uint8_t* byte) {
    if (left_ == 0) return false;
    *byte = static_cast<uint8_t>(Take(1).front());
    return true;
  }

  // In its shortest form, of 64 bits.
  bool ReadVarint(uint64_t* value) {
    constexpr int kMostBits = 64, kBitsPerByte = 7;
    *value = 0;
    for (int shift = 0; shift < kMostBits; shift += kBitsPerByte) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      const uint64_t bits = byte & 0x7F;
      if ((bits << shift) >> shift != bits) return false;
      *value |= bits << shift;
      if (byte < 0x80) return byte != 0 || shift == 0;
    }
    return false;
  }

  // As many bytes as follow, at least.
  bool ReadLength(size_t* bytes) {
    uint64_t value = 0;
    if (!ReadVarint(&value) || value > left_) return false;
    *bytes = static_cast<size_t>(value);
    return true;
  }

  bool ReadFixed32(uint32_t* value) {
    *value = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      *value |= uint32_t{byte} << shift;
    }
    return true;
  }

  // The next `bytes` bytes, not more than are left.
  template <typename Pieces>
  void ReadPieces(size_t bytes, Pieces* pieces) {
    while (bytes > 0) {
      pieces->push_back(Take(bytes));
      bytes -= pieces->back().size();
    }
  }

 private:
  // At most `bytes`, and at least one, of the piece that comes next. Some must be left.
  std::string_view Take(size_t bytes) {
    while (rest_.front().size() == at_) {
      rest_ = rest_.subspan(1);
      at_ = 0;
    }
    const std::string_view taken = rest_.front().substr(at_, bytes);
    at_ += taken.size();
    left_ -= taken.size();
    return taken;
  }

  std::span<const std::string_view> rest_;
  size_t at_ = 0;  // of the first of them
  size_t left_ = 0;
};

bool ReadChunkField(uint8_t tag, PieceReader* reader, ChunkView* chunk) {
  uint64_t value = 0;
  switch (tag) {
    case Tag(v1::TensorChunk::kSetFieldNumber, kVarint):
      if (!reader->ReadVarint(&value)) return false;
      chunk->set = static_cast<int64_t>(value);
      return true;
    case Tag(v1::TensorChunk::kOperandFieldNumber, kVarint):
      if (!reader->ReadVarint(&value)) return false;
      chunk->operand = static_cast<int32_t>(value);
      return chunk->operand == static_cast<int64_t>(value);
    case Tag(v1::TensorChunk::kOffsetBytesFieldNumber, kVarint):
      if (!reader->ReadVarint(&value)) return false;
      chunk->offset_bytes = static_cast<int64_t>(value);
      return true;
    case Tag(v1::TensorChunk::kDataFieldNumber, kDelimited): {
      size_t bytes = 0;
      if (!reader->ReadLength(&bytes)) return false;
      reader->ReadPieces(bytes, &chunk->data);
      return true;
    }
    case Tag(v1::TensorChunk::kCrc32CFieldNumber, kFixed32):
      return reader->ReadFixed32(&chunk->crc32c.emplace());
    default:
      return false;
  }
}

}  // namespace

absl::Status MalformedFrame(int64_t number, int64_t bytes) {
  return Error(Reason::kMalformedFrame, StrCat("frame ", number, " of the stream, of ", bytes,
                                               " bytes, is not a message of the method's type"))
      .Meta("frame_number", number)
      .Meta("actual_bytes", bytes);
}

absl::Status UnserializableFrame() {
  return Error(Reason::kInternal, "a frame of the answer can't be serialised");
}

std::optional<ChunkFrame> SplitChunk(std::span<const std::string_view> pieces,
                                     std::span<const int> fields) {
  PieceReader reader(pieces);
  uint8_t tag = 0;
  size_t bytes = 0;
  if (reader.left() > kMostFrameBytes) return std::nullopt;
  if (!reader.ReadByte(&tag)) return std::nullopt;
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](int number) { return Tag(number, kDelimited) == tag; });
  if (field == fields.end()) return std::nullopt;
  if (!reader.ReadLength(&bytes) || bytes != reader.left()) return std::nullopt;
  ChunkFrame frame;
  frame.field = *field;
  uint64_t seen = 0;  // one bit for each tag
  while (reader.left() > 0) {
    if (!reader.ReadByte(&tag) || tag >= 64 || (seen >> tag & 1) != 0) return std::nullopt;
    seen |= uint64_t{1} << tag;
    if (!ReadChunkField(tag, &reader, &frame.chunk)) return std::nullopt;
  }
  return frame;
}

std::optional<ChunkFrame> SplitChunk(grpc::ByteBuffer* bytes, std::span<const int> fields) {
  if (fields.empty() || bytes->Length() < kSmallFrameBytes) return std::nullopt;
  std::vector<grpc::Slice> slices;
  if (!bytes->Dump(&slices).ok()) return std::nullopt;
  std::vector<std::string_view> pieces;
  pieces.reserve(slices.size());
  for (const grpc::Slice& slice : slices) {
    pieces.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  std::optional<ChunkFrame> frame = SplitChunk(pieces, fields);
  if (!frame.has_value()) return std::nullopt;
  frame->slices = std::move(slices);  // the elements stay where they are
  bytes->Clear();
  return frame;
}

void CancelCall(grpc::CallbackServerContext* context, const absl::Status& status) {
  const std::string text =
      StrCat(ReasonName(GetErrorDetails(status).reason), ": ", status.message());
  grpc_call_cancel_with_status(context->c_call(), static_cast<grpc_status_code>(status.code()),
                               text.c_str(), nullptr);
}

}  // namespace tenon::server
