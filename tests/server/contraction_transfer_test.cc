// Tensors in chunks: receiving and sending.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "backends/core/crc32c.h"
#include "server/tensor_receiver.h"
#include "server/tensor_sender.h"
#include "tests/support/status_matchers.h"

namespace tenon::server {
namespace {

using tenon::testing::Fails;

constexpr int64_t kMaxChunk = 1024;

v1::TensorChunk Chunk(int64_t offset, const std::string& data) {
  v1::TensorChunk chunk;
  chunk.set_offset_bytes(offset);
  chunk.set_data(data);
  return chunk;
}

TensorReceiver Receiver(std::vector<int64_t> shape) {
  auto receiver = TensorReceiver::Create({DType::kUint8, std::move(shape)});
  EXPECT_TRUE(receiver.ok()) << receiver.status();
  return *std::move(receiver);
}

std::string Contents(const Tensor& tensor) {
  return {tensor.buffer.as<char>(), static_cast<size_t>(tensor.buffer.size_bytes())};
}

TEST(TensorReceiver, PutsChunksTogether) {
  TensorReceiver receiver = Receiver({2, 4});
  EXPECT_FALSE(receiver.complete());
  ASSERT_TRUE(receiver.Accept(Chunk(0, "abc"), kMaxChunk).ok());
  ASSERT_TRUE(receiver.Accept(Chunk(3, "de"), kMaxChunk).ok());
  EXPECT_EQ(receiver.received_bytes(), 5);
  EXPECT_FALSE(receiver.complete());
  ASSERT_TRUE(receiver.Accept(Chunk(5, "fgh"), kMaxChunk).ok());
  EXPECT_TRUE(receiver.complete());
  EXPECT_EQ(Contents(receiver.Take()), "abcdefgh");
  EXPECT_TRUE(receiver.complete());  // nothing is expected any more
  EXPECT_EQ(receiver.size_bytes(), 0);
}

TEST(TensorReceiver, RefusesWhatIsOutOfPlace) {
  TensorReceiver receiver = Receiver({8});
  ASSERT_TRUE(receiver.Accept(Chunk(0, "abc"), kMaxChunk).ok());
  EXPECT_TRUE(
      Fails(receiver.Accept(Chunk(4, "e"), kMaxChunk), Reason::kChunkOrder, "offset_bytes"));
  EXPECT_TRUE(
      Fails(receiver.Accept(Chunk(2, "c"), kMaxChunk), Reason::kChunkOrder, "offset_bytes"));
  EXPECT_TRUE(
      Fails(receiver.Accept(Chunk(-1, "c"), kMaxChunk), Reason::kChunkOrder, "offset_bytes"));
  EXPECT_TRUE(
      Fails(receiver.Accept(Chunk(3, "defghi"), kMaxChunk), Reason::kChunkOverflow, "data"));
  EXPECT_TRUE(Fails(receiver.Accept(Chunk(3, "defg"), 3), Reason::kChunkOverflow, "data"));
  EXPECT_TRUE(Fails(receiver.Accept(Chunk(3, ""), kMaxChunk), Reason::kMissingField, "data"));
  // A refused chunk has left no trace.
  EXPECT_EQ(receiver.received_bytes(), 3);
  ASSERT_TRUE(receiver.Accept(Chunk(3, "defgh"), kMaxChunk).ok());
  EXPECT_EQ(Contents(receiver.Take()), "abcdefgh");
}

TEST(TensorReceiver, ChecksTheChecksum) {
  TensorReceiver receiver = Receiver({3});
  v1::TensorChunk chunk = Chunk(0, "abc");
  chunk.set_crc32c(Crc32c("abd"));
  EXPECT_TRUE(Fails(receiver.Accept(chunk, kMaxChunk), Reason::kChecksumMismatch, "crc32c"));
  chunk.set_crc32c(Crc32c("abc"));
  EXPECT_TRUE(receiver.Accept(chunk, kMaxChunk).ok());
}

TEST(TensorReceiver, PutsThePiecesOfAChunkTogether) {
  TensorReceiver receiver = Receiver({9});
  ChunkView chunk;
  chunk.data = {"ab", "c", "def"};
  chunk.crc32c = Crc32c("abcdeg");
  EXPECT_TRUE(Fails(receiver.Accept(chunk, kMaxChunk), Reason::kChecksumMismatch, "crc32c"));
  EXPECT_TRUE(Fails(receiver.Accept(chunk, 5), Reason::kChunkOverflow, "data"));
  EXPECT_EQ(receiver.received_bytes(), 0);
  chunk.crc32c = Crc32c("abcdef");
  ASSERT_TRUE(receiver.Accept(chunk, kMaxChunk).ok());
  chunk.offset_bytes = 6;
  chunk.crc32c.reset();
  EXPECT_TRUE(Fails(receiver.Accept(chunk, kMaxChunk), Reason::kChunkOverflow, "data"));
  chunk.data = {"g", "hi"};
  ASSERT_TRUE(receiver.Accept(chunk, kMaxChunk).ok());
  EXPECT_EQ(Contents(receiver.Take()), "abcdefghi");
}

TEST(TensorReceiver, TakesAllAtOnce) {
  TensorReceiver receiver = Receiver({4});
  const absl::Status mismatch = receiver.AcceptAll("abc");
  EXPECT_TRUE(Fails(mismatch, Reason::kShapeMismatch));
  EXPECT_EQ(GetErrorDetails(mismatch).metadata["expected_bytes"], "4");
  EXPECT_EQ(GetErrorDetails(mismatch).metadata["actual_bytes"], "3");
  ASSERT_TRUE(receiver.AcceptAll("abcd").ok());
  EXPECT_TRUE(Fails(receiver.AcceptAll("abcd"), Reason::kChunkOrder));
  receiver.Restart();
  ASSERT_TRUE(receiver.AcceptAll("efgh").ok());
  EXPECT_EQ(Contents(receiver.tensor()), "efgh");
}

TEST(TensorReceiver, EmptyAndHugeTensors) {
  TensorReceiver receiver = Receiver({3, 0});
  EXPECT_TRUE(receiver.complete());
  EXPECT_TRUE(receiver.AcceptAll("").ok());
  EXPECT_TRUE(Fails(receiver.Accept(Chunk(0, "a"), kMaxChunk), Reason::kChunkOverflow, "data"));
  EXPECT_TRUE(Fails(TensorReceiver::Create({DType::kUint8, {int64_t{1} << 32, int64_t{1} << 32}}),
                    Reason::kOverflow));
}

std::shared_ptr<const Tensor> Bytes(const std::string& text) {
  auto tensor = Tensor::Allocate({DType::kUint8, {static_cast<int64_t>(text.size())}});
  EXPECT_TRUE(tensor.ok());
  std::memcpy(tensor->buffer.data(), text.data(), text.size());
  return std::make_shared<const Tensor>(*std::move(tensor));
}

TEST(TensorSender, CutsInOrder) {
  TensorSender sender(Bytes("abcdefgh"), {.set = 7, .operand = 2, .chunk_bytes = 3});
  v1::TensorChunk chunk;
  std::string all;
  for (const size_t expected : {3, 3, 2}) {
    ASSERT_TRUE(sender.Next(&chunk));
    EXPECT_EQ(chunk.set(), 7);
    EXPECT_EQ(chunk.operand(), 2);
    EXPECT_EQ(chunk.offset_bytes(), static_cast<int64_t>(all.size()));
    EXPECT_EQ(chunk.data().size(), expected);
    EXPECT_FALSE(chunk.has_crc32c());
    all += chunk.data();
  }
  EXPECT_FALSE(sender.Next(&chunk));
  EXPECT_EQ(all, "abcdefgh");
}

TEST(TensorSender, ChecksumsOfPiecesAndOfTheWhole) {
  TensorSender sender(Bytes("abcdefgh"), {.chunk_bytes = 5, .checksums = true});
  v1::TensorChunk chunk;
  ASSERT_TRUE(sender.Next(&chunk));
  EXPECT_EQ(chunk.crc32c(), Crc32c("abcde"));
  ASSERT_TRUE(sender.Next(&chunk));
  EXPECT_EQ(chunk.crc32c(), Crc32c("fgh"));
  EXPECT_FALSE(sender.Next(&chunk));
  EXPECT_EQ(sender.crc32c(), Crc32c("abcdefgh"));
}

TEST(TensorSender, AnEmptyTensorHasNoChunk) {
  TensorSender sender(Bytes(""), {});
  v1::TensorChunk chunk;
  EXPECT_FALSE(sender.Next(&chunk));
}

}  // namespace
}  // namespace tenon::server
