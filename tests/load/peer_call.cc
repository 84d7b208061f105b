#include "tests/load/peer_call.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace tenon::testing {
namespace {

void* const kTag = nullptr;
int read_tag;  // its address

}  // namespace

void Die(const std::string& text) {
  std::fprintf(stderr, "load_driver: %s\n", text.c_str());
  std::exit(1);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize((4 << 20) + (64 << 10));
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto limit = std::chrono::system_clock::now() + std::chrono::seconds(10);
  if (!channel->WaitForConnected(limit)) Die("no server answers at " + address);
  return channel;
}

grpc::ByteBuffer ToBuffer(const std::string& bytes) {
  grpc::Slice slice(bytes.data(), bytes.size());
  return {&slice, 1};
}

grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  return ToBuffer(message.SerializeAsString());
}

void Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) Die("a message can't be read");
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  if (!message->ParseFromString(bytes)) Die("a message does not parse");
}

PeerCall::PeerCall(grpc::GenericStub* stub, const std::string& method, grpc::CompletionQueue* queue,
                   bool corked)
    : queue_(queue) {
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(5));
  context_.set_initial_metadata_corked(corked);
  stream_ = stub->PrepareCall(&context_, method, queue);
  stream_->StartCall(kTag);
  if (!corked && !Next()) Finish();
}

bool PeerCall::Next() {
  void* tag = nullptr;
  bool ok = false;
  if (!queue_->Next(&tag, &ok)) Die("the completion queue has ended");
  return ok;
}

void PeerCall::Write(const grpc::ByteBuffer& message, bool last) {
  grpc::WriteOptions options;
  if (last) options.set_last_message();
  stream_->Write(message, options, kTag);
  if (!Next()) Finish();
}

bool PeerCall::Read(grpc::ByteBuffer* message) {
  stream_->Read(message, kTag);
  return Next();
}

void PeerCall::Exchange(const grpc::ByteBuffer& message, grpc::ByteBuffer* answer, bool last) {
  grpc::WriteOptions options;
  if (last) options.set_last_message();
  stream_->Write(message, options, kTag);
  stream_->Read(answer, &read_tag);
  const bool first = Next(), second = Next();
  if (!first || !second) {
    Finish();
    Die("the call ended without an answer");
  }
}

void PeerCall::HalfClose() {
  stream_->WritesDone(kTag);
  Next();
}

void PeerCall::Finish() {
  grpc::Status status;
  stream_->Finish(&status, kTag);
  Next();
  if (!status.ok()) Die("the call failed: " + status.error_message());
}

}  // namespace tenon::testing
