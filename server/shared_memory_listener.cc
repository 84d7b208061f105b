#include "server/shared_memory_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "backends/core/error.h"
#include "server/logging.h"
#include "server/status.h"
#include "tenon/v1/shared_memory.pb.h"

namespace tenon::server {
namespace {

constexpr int kProtocolVersion = 1;
constexpr size_t kMaxMessageBytes = 4096;
// Connections beside the pools that may exist: those that have not introduced theirs yet.
constexpr size_t kNewConnections = 64;
// What a client gets to introduce its pool.
constexpr std::chrono::seconds kHelloTime(10);
// How often that is looked at, while somebody is new.
constexpr int kTickMilliseconds = 1000;
// When the process has no descriptors left: a pause, instead of a busy loop.
constexpr int kAcceptPauseMilliseconds = 100;

std::string ErrorText() { return std::generic_category().message(errno); }

absl::Status BadSocket(const std::string& path, const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("--shared_memory_socket: '", path, "': ", what))
      .Field("shared_memory_socket")
      .Meta("path", path);
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return BadSocket(path, StrCat("expected 1 to ", sizeof(address.sun_path) - 1, " bytes"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

FileDescriptor NewSocket() {
  return FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool IsSocket(const std::string& path, ino_t* inode) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  *inode = file.st_ino;
  return true;
}

// Removes what a server that died has left. Nothing else is touched: binding then fails.
void RemoveStale(const std::string& path, const sockaddr_un& address) {
  ino_t inode = 0;
  if (!IsSocket(path, &inode)) return;
  const FileDescriptor probe = NewSocket();
  const auto* target = reinterpret_cast<const sockaddr*>(&address);
  if (connect(probe.get(), target, sizeof(address)) != 0 && errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
}

// One packet with the first of the descriptors in it.
struct Packet {
  std::string bytes;
  bool complete = false;  // nothing was cut off
  FileDescriptor descriptor;
};

// Null: there is none now, or the connection has ended (`*ended`).
std::optional<Packet> Receive(int socket, bool* ended) {
  Packet packet;
  packet.bytes.resize(kMaxMessageBytes);
  iovec part{packet.bytes.data(), packet.bytes.size()};
  constexpr size_t kMaxDescriptors = 4;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes <= 0) {
    *ended = bytes == 0 || (errno != EAGAIN && errno != EINTR);
    return std::nullopt;
  }
  packet.bytes.resize(static_cast<size_t>(bytes));
  packet.complete = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr;
       item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(fd));
      FileDescriptor descriptor(fd);  // closes those beyond the first
      if (!packet.descriptor.open()) {
        packet.descriptor = std::move(descriptor);
      } else {
        packet.complete = false;
      }
    }
  }
  return packet;
}

absl::Status CheckHello(const Packet& packet) {
  v1::SharedMemoryHello hello;
  if (!packet.complete || !hello.ParseFromString(packet.bytes)) {
    return Error(Reason::kMalformedFrame, "expected a SharedMemoryHello with one descriptor");
  }
  if (hello.version() != kProtocolVersion) {
    return Error(Reason::kNotImplemented, StrCat("this server speaks version ", kProtocolVersion,
                                                 " of the protocol; ", hello.version(), " came"))
        .Field("version");
  }
  if (packet.descriptor.open()) return absl::OkStatus();
  return Error(Reason::kMissingField, "the hello came without a descriptor");
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

absl::StatusOr<std::unique_ptr<SharedMemoryListener>> SharedMemoryListener::Start(
    const std::vector<uid_t>& uids, SharedMemory* memory) {
  std::unique_ptr<SharedMemoryListener> listener(new SharedMemoryListener(uids, memory));
  TENON_RETURN_IF_ERROR(listener->Bind());
  listener->thread_ = std::thread([self = listener.get()] { self->Run(); });
  return listener;
}

SharedMemoryListener::~SharedMemoryListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  ino_t inode = 0;
  const std::string& path = memory_->options().socket;
  // Another server may have taken the place meanwhile.
  if (inode_ != 0 && IsSocket(path, &inode) && inode == inode_) unlink(path.c_str());
}

absl::Status SharedMemoryListener::Bind() {
  const std::string& path = memory_->options().socket;
  TENON_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  RemoveStale(path, address);
  listener_ = NewSocket();
  stop_ = FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener_.open() || !stop_.open()) return BadSocket(path, ErrorText());
  const auto* target = reinterpret_cast<const sockaddr*>(&address);
  if (bind(listener_.get(), target, sizeof(address)) != 0) return BadSocket(path, ErrorText());
  if (!IsSocket(path, &inode_)) return BadSocket(path, "it is gone again");
  // Others need to write to the file to connect at all; who they are is checked then.
  const mode_t mode = uids_.empty() ? S_IRUSR | S_IWUSR : DEFFILEMODE;
  if (chmod(path.c_str(), mode) != 0) return BadSocket(path, ErrorText());
  if (listen(listener_.get(), SOMAXCONN) != 0) return BadSocket(path, ErrorText());
  return absl::OkStatus();
}

void SharedMemoryListener::Run() {
  for (;;) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    bool somebody_new = false;
    for (const Connection& connection : connections_) {
      polled.push_back({connection.socket.get(), POLLIN, 0});
      somebody_new |= connection.token.empty();
    }
    if (poll(polled.data(), polled.size(), somebody_new ? kTickMilliseconds : -1) < 0) continue;
    if (polled[0].revents != 0) break;
    const Clock::time_point late = Clock::now() - kHelloTime;
    size_t i = 2;
    for (auto connection = connections_.begin(); connection != connections_.end(); ++i) {
      const bool served = polled[i].revents == 0 || Serve(&*connection);
      if (served && !(connection->token.empty() && connection->since < late)) {
        ++connection;
        continue;
      }
      End(*connection);
      connection = connections_.erase(connection);
    }
    if (polled[1].revents != 0) Accept();
  }
  for (const Connection& connection : connections_) End(connection);
  connections_.clear();
}

void SharedMemoryListener::Accept() {
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.open()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      pollfd stop{stop_.get(), POLLIN, 0};
      poll(&stop, 1, kAcceptPauseMilliseconds);
    }
    return;
  }
  if (!MayConnect(socket.get())) {
    Answer(socket.get(),
           Error(Reason::kPermissionDenied, "this user may not share memory with the server"), 0);
    return;
  }
  const auto limit = static_cast<size_t>(memory_->options().pools) + kNewConnections;
  if (connections_.size() >= limit) {
    Answer(socket.get(),
           Error(Reason::kOverloaded, "there are too many connections for shared memory")
               .Meta("retry_delay_seconds", 1),
           0);
    return;
  }
  connections_.push_back({std::move(socket), "", Clock::now()});
}

bool SharedMemoryListener::MayConnect(int socket) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0 ||
         std::find(uids_.begin(), uids_.end(), peer.uid) != uids_.end();
}

bool SharedMemoryListener::Serve(Connection* connection) {
  bool ended = false;
  const std::optional<Packet> packet = Receive(connection->socket.get(), &ended);
  if (!packet.has_value()) return !ended;
  if (!connection->token.empty()) return false;  // nothing may follow the hello
  const absl::Status hello = CheckHello(*packet);
  const absl::StatusOr<std::string> token =
      hello.ok() ? memory_->Add(packet->descriptor.get()) : absl::StatusOr<std::string>(hello);
  int64_t size_bytes = 0;
  if (token.ok()) {
    struct stat file {};
    fstat(packet->descriptor.get(), &file);
    size_bytes = file.st_size;
    connection->token = *token;
    Log(LogLevel::kInfo, "shared memory", {{"pool_bytes", size_bytes}});
  } else {
    Log(LogLevel::kWarning, "shared memory refused",
        {{"reason", std::string(token.status().message())}});
  }
  return Answer(connection->socket.get(), token, size_bytes) && token.ok();
}

bool SharedMemoryListener::Answer(int socket, const absl::StatusOr<std::string>& token,
                                  int64_t size_bytes) {
  v1::SharedMemoryWelcome welcome;
  if (token.ok()) {
    welcome.set_pool(*token);
    welcome.set_size_bytes(size_bytes);
  } else {
    *welcome.mutable_error() = ToErrorDetail(token.status());
  }
  const std::string bytes = welcome.SerializeAsString();
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

void SharedMemoryListener::End(const Connection& connection) {
  if (!connection.token.empty()) memory_->Remove(connection.token);
}

}  // namespace tenon::server
