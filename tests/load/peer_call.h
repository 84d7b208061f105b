// Calls of prepared bytes: the same client for Tenon and for the bare echo, so that what differs
// between the two is the server alone.

#ifndef TENON_TESTS_LOAD_PEER_CALL_H_
#define TENON_TESTS_LOAD_PEER_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "google/protobuf/message_lite.h"

namespace tenon::testing {

// Ends the program with the text: a benchmark has nobody to tell.
[[noreturn]] void Die(const std::string& text);

// A connection that no other channel shares.
std::shared_ptr<grpc::Channel> Connect(const std::string& address);

grpc::ByteBuffer ToBuffer(const std::string& bytes);
grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message);
void Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// One bidirectional call, driven by the calling thread alone: it polls for its own completions.
// Every failure of the call ends the program.
class PeerCall {
 public:
  // `queue` serves one call at a time. `corked`: the call begins with its first message.
  PeerCall(grpc::GenericStub* stub, const std::string& method, grpc::CompletionQueue* queue,
           bool corked = false);
  PeerCall(const PeerCall&) = delete;
  PeerCall& operator=(const PeerCall&) = delete;

  void Write(const grpc::ByteBuffer& message, bool last = false);
  // False at the end of the answers.
  bool Read(grpc::ByteBuffer* message);
  // Writes and waits for the answer; both are under way at once.
  void Exchange(const grpc::ByteBuffer& message, grpc::ByteBuffer* answer, bool last = false);
  void HalfClose();
  void Finish();

 private:
  bool Next();

  grpc::ClientContext context_;
  grpc::CompletionQueue* const queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
};

}  // namespace tenon::testing

#endif  // TENON_TESTS_LOAD_PEER_CALL_H_
