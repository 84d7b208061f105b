// Frames whose messages and strings lie together.

#ifndef TENON_SERVER_FRAME_ARENA_H_
#define TENON_SERVER_FRAME_ARENA_H_

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>

namespace tenon::server {

// One frame at a time on an arena whose first block is inside of this object: to build or parse a
// small frame, and to drop it, takes almost no allocations. To move a part of one elsewhere is to
// copy it, strings excepted. Not thread-safe.
template <typename Frame>
class FrameArena {
 public:
  FrameArena() : arena_(Options(&first_)) { Renew(); }
  FrameArena(const FrameArena&) = delete;
  FrameArena& operator=(const FrameArena&) = delete;

  Frame& operator*() { return *frame_; }
  Frame* operator->() { return frame_; }

  // An empty frame in place of the one before, whose memory is given back.
  Frame* Renew() {
    if (frame_ != nullptr) arena_.Reset();
    frame_ = google::protobuf::Arena::CreateMessage<Frame>(&arena_);
    return frame_;
  }

 private:
  using Block = std::array<std::byte, 4096>;

  static google::protobuf::ArenaOptions Options(Block* first) {
    google::protobuf::ArenaOptions options;
    options.initial_block = reinterpret_cast<char*>(first->data());
    options.initial_block_size = first->size();
    return options;
  }

  alignas(std::max_align_t) Block first_;
  google::protobuf::Arena arena_;
  Frame* frame_ = nullptr;
};

// The same interface for a frame on its own: parts of it can be moved elsewhere.
template <typename Frame>
class PlainFrame {
 public:
  Frame& operator*() { return frame_; }
  Frame* Renew() {
    frame_.Clear();
    return &frame_;
  }

 private:
  Frame frame_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_FRAME_ARENA_H_
