#include "tenon/shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/memory.h"
#include "client/cpp/status.h"
#include "tenon/v1/shared_memory.pb.h"

namespace tenon::client {
namespace {

constexpr int kProtocolVersion = 1;
constexpr size_t kMaxMessageBytes = 4096;
// What the server gets to answer; it does so at once.
constexpr int kAnswerMilliseconds = 10'000;

std::string ErrorText() { return std::generic_category().message(errno); }

absl::Status NoServer(const std::string& socket, const std::string& why) {
  return absl::UnavailableError(StrCat("no shared-memory server answers at '", socket, "': ", why));
}

absl::Status NoMemory(int64_t bytes, const std::string& why) {
  return Error(Reason::kExceedsMemoryBudget,
               StrCat("the system refused ", bytes, " bytes of shared memory: ", why))
      .Meta("requested_bytes", bytes);
}

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Descriptor taken(std::move(other));
    std::swap(fd_, taken.fd_);
    return *this;
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

// A memfd of this size that can neither shrink nor grow any more.
absl::StatusOr<Descriptor> MakeMemory(int64_t bytes) {
  Descriptor memory(memfd_create("tenon-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.open() || ftruncate(memory.get(), bytes) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return NoMemory(bytes, ErrorText());
  }
  return memory;
}

bool SendHello(int socket, int memory) {
  v1::SharedMemoryHello hello;
  hello.set_version(kProtocolVersion);
  std::string bytes = hello.SerializeAsString();
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* item = CMSG_FIRSTHDR(&message);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(item), &memory, sizeof(memory));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// The connection that keeps the pool alive, and the token.
struct Introduction {
  Descriptor socket;
  std::string token;
};

absl::StatusOr<Introduction> Introduce(const std::string& path, int memory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return NoServer(path, "this is not the path of a socket");
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  Introduction result{Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)), ""};
  const int socket = result.socket.get();
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return NoServer(path, ErrorText());
  }
  // A refusal may be there already, and the connection closed: then sending fails, reading does
  // not.
  SendHello(socket, memory);
  pollfd answer{socket, POLLIN, 0};
  std::string bytes(kMaxMessageBytes, '\0');
  ssize_t got = 0;
  if (poll(&answer, 1, kAnswerMilliseconds) > 0) {
    got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    // The server has closed without reading the hello; its refusal stands behind that error.
    if (got < 0 && errno == ECONNRESET) {
      got = recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    }
  }
  v1::SharedMemoryWelcome welcome;
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (bytes.empty()) return NoServer(path, "the connection ended without an answer");
  if (!welcome.ParseFromString(bytes)) return BrokenContract("the welcome can't be parsed");
  if (welcome.has_error()) return StatusFromDetail(welcome.error());
  if (welcome.pool().empty()) return BrokenContract("the welcome has neither a token nor an error");
  result.token = welcome.pool();
  return result;
}

}  // namespace

struct SharedPool::Impl {
  std::string path;
  Descriptor memory;

  std::mutex introducing;  // taken before the other
  mutable std::mutex mutex;
  Descriptor socket;
  std::string token;
  std::map<int64_t, int64_t> free;                   // bytes by offset; neighbours are one piece
  std::vector<std::pair<int64_t, int64_t>> retired;  // offset and bytes
};

SharedPool::SharedPool(std::unique_ptr<Impl> impl, std::byte* data, int64_t size_bytes)
    : impl_(std::move(impl)), data_(data), size_bytes_(size_bytes) {}

SharedPool::~SharedPool() { munmap(data_, static_cast<size_t>(size_bytes_)); }

absl::StatusOr<std::shared_ptr<SharedPool>> SharedPool::Connect(const std::string& socket,
                                                                int64_t size_bytes, bool populate) {
  if (size_bytes < 1) {
    return Error(Reason::kBadParameter, StrCat("a pool of ", size_bytes, " bytes"))
        .Field("size_bytes");
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  if (size_bytes > INT64_MAX - page) return NoMemory(size_bytes, "it is too large");
  size_bytes = RoundUp(size_bytes, page);
  auto impl = std::make_unique<Impl>();
  impl->path = socket;
  TENON_ASSIGN_OR_RETURN(impl->memory, MakeMemory(size_bytes));
  TENON_ASSIGN_OR_RETURN(Introduction introduction, Introduce(socket, impl->memory.get()));
  impl->socket = std::move(introduction.socket);
  impl->token = std::move(introduction.token);
  impl->free[0] = size_bytes;
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | (populate ? MAP_POPULATE : 0), impl->memory.get(), 0);
  if (data == MAP_FAILED) return NoMemory(size_bytes, ErrorText());
  return std::shared_ptr<SharedPool>(
      new SharedPool(std::move(impl), static_cast<std::byte*>(data), size_bytes));
}

absl::StatusOr<SharedBlock> SharedPool::Allocate(int64_t bytes) {
  if (bytes < 0) {
    return Error(Reason::kBadParameter, StrCat("a block of ", bytes, " bytes")).Field("bytes");
  }
  const int64_t needed =
      bytes > size_bytes_ ? size_bytes_ + 1 : RoundUp(std::max<int64_t>(bytes, 1), kCacheLineBytes);
  std::lock_guard lock(impl_->mutex);
  std::map<int64_t, int64_t>& free = impl_->free;
  const auto piece =
      std::find_if(free.begin(), free.end(), [&](const auto& p) { return p.second >= needed; });
  if (piece == free.end()) {
    return Error(Reason::kExceedsMemoryBudget,
                 StrCat("the shared-memory pool of ", size_bytes_, " bytes has no ", bytes,
                        " bytes in one piece now"))
        .Meta("requested_bytes", bytes)
        .Meta("pool_bytes", size_bytes_);
  }
  SharedBlock block;
  block.pool_ = shared_from_this();
  block.offset_bytes_ = piece->first;
  block.size_bytes_ = bytes;
  block.data_ = data_ + block.offset_bytes_;
  const int64_t left = piece->second - needed;
  free.erase(piece);
  if (left > 0) free[block.offset_bytes_ + needed] = left;
  return block;
}

void SharedPool::GiveBack(int64_t offset, int64_t bytes) {
  int64_t size = RoundUp(std::max<int64_t>(bytes, 1), kCacheLineBytes);
  std::lock_guard lock(impl_->mutex);
  std::map<int64_t, int64_t>& free = impl_->free;
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + size) {
    size += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free[offset] = size;
}

int64_t SharedPool::free_bytes() const {
  std::lock_guard lock(impl_->mutex);
  int64_t bytes = 0;
  for (const auto& [offset, size] : impl_->free) bytes += size;
  return bytes;
}

std::optional<int64_t> SharedPool::OffsetOf(std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  const auto at = reinterpret_cast<uintptr_t>(bytes.data());
  if (at < begin || at - begin > static_cast<uintptr_t>(size_bytes_)) return std::nullopt;
  const auto offset = static_cast<int64_t>(at - begin);
  if (static_cast<int64_t>(bytes.size()) > size_bytes_ - offset) return std::nullopt;
  if (offset % kCacheLineBytes != 0) return std::nullopt;
  return offset;
}

// Nothing is sent after the welcome: whatever there is to read is the end.
bool SharedPool::connected() const {
  std::lock_guard lock(impl_->mutex);
  pollfd socket{impl_->socket.get(), POLLIN, 0};
  return impl_->socket.open() && poll(&socket, 1, 0) == 0;
}

std::string SharedPool::EnsureConnected() {
  if (connected()) {
    std::lock_guard lock(impl_->mutex);
    return impl_->token;
  }
  std::lock_guard introducing(impl_->introducing);
  if (connected()) {  // somebody else was faster
    std::lock_guard lock(impl_->mutex);
    return impl_->token;
  }
  Drop();
  absl::StatusOr<Introduction> again = Introduce(impl_->path, impl_->memory.get());
  if (!again.ok()) return "";
  std::vector<std::pair<int64_t, int64_t>> retired;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->socket = std::move(again->socket);
    impl_->token = again->token;
    retired.swap(impl_->retired);
  }
  for (const auto& [offset, bytes] : retired) GiveBack(offset, bytes);
  return again->token;
}

// The server takes the memory anew only after the old connection has ended.
void SharedPool::Drop() {
  std::lock_guard lock(impl_->mutex);
  impl_->socket = Descriptor();
  impl_->token.clear();
}

void SharedPool::Retire(std::vector<SharedBlock> blocks) {
  Drop();
  std::lock_guard lock(impl_->mutex);
  for (SharedBlock& block : blocks) {
    impl_->retired.emplace_back(block.offset_bytes_, block.size_bytes_);
    block.data_ = nullptr;
    block.offset_bytes_ = block.size_bytes_ = 0;
    block.pool_.reset();  // the caller has a share
  }
}

SharedBlock& SharedBlock::operator=(SharedBlock&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pool_ = std::move(other.pool_);
  data_ = std::exchange(other.data_, nullptr);
  offset_bytes_ = std::exchange(other.offset_bytes_, 0);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

void SharedBlock::Release() {
  if (pool_ == nullptr) return;
  pool_->GiveBack(offset_bytes_, size_bytes_);
  pool_.reset();
  data_ = nullptr;
  offset_bytes_ = size_bytes_ = 0;
}

}  // namespace tenon::client
