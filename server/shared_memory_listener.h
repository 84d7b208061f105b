// The socket over which clients introduce shared memory: the protocol of shared_memory.proto.

#ifndef TENON_SERVER_SHARED_MEMORY_LISTENER_H_
#define TENON_SERVER_SHARED_MEMORY_LISTENER_H_

#include <sys/types.h>

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shared_memory.h"

namespace tenon::server {

// A file descriptor that is closed with it. Movable.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// One thread serves all connections; none of them can hold it up. What a connection brought goes
// when it ends, from whichever side.
class SharedMemoryListener {
 public:
  // Binds the socket and serves it. `uids` are users, besides the server's own and root, who may
  // connect. BAD_PARAMETER when the path can't be bound; a socket that nobody listens on any more
  // is replaced. `memory` outlives this.
  static absl::StatusOr<std::unique_ptr<SharedMemoryListener>> Start(const std::vector<uid_t>& uids,
                                                                     SharedMemory* memory);
  // Ends all connections and removes the socket.
  ~SharedMemoryListener();
  SharedMemoryListener(const SharedMemoryListener&) = delete;
  SharedMemoryListener& operator=(const SharedMemoryListener&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    FileDescriptor socket;
    std::string token;        // of its pool, once it has one
    Clock::time_point since;  // it was accepted
  };

  SharedMemoryListener(const std::vector<uid_t>& uids, SharedMemory* memory)
      : uids_(uids), memory_(memory) {}
  absl::Status Bind();
  void Run();
  void Accept();
  bool MayConnect(int socket) const;
  // False: the connection has ended.
  bool Serve(Connection* connection);
  // A refusal that the client may not get: it is told if its buffer has room.
  static bool Answer(int socket, const absl::StatusOr<std::string>& token, int64_t size_bytes);
  void End(const Connection& connection);

  const std::vector<uid_t> uids_;
  SharedMemory* const memory_;
  FileDescriptor listener_, stop_;
  ino_t inode_ = 0;                    // of the socket's file
  std::list<Connection> connections_;  // the thread's
  std::thread thread_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_SHARED_MEMORY_LISTENER_H_
