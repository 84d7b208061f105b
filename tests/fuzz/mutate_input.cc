// Apart from frame_input.cc, because only a fuzz target links libFuzzer.

#include <google/protobuf/stubs/logging.h>

#include <cstring>

#include "tests/fuzz/frame_input.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

// Bytes that are no message are the rule here, and no news.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

namespace tenon::fuzz {

size_t MutateInput(const google::protobuf::Message& prototype, uint8_t* data, size_t size,
                   size_t max_size, unsigned seed) {
  std::minstd_rand random(seed);
  constexpr unsigned kOwnOneIn = 8;
  if (random() % kOwnOneIn == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::vector<std::string> frames = SplitFrames({reinterpret_cast<const char*>(data), size});
  for (unsigned steps = 1 + random() % 3; steps > 0; --steps) {
    MutateFrames(prototype, &frames, &random);
  }
  const std::string changed = JoinFrames(frames);
  if (changed.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

}  // namespace tenon::fuzz
