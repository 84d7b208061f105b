// A stream of frames as a fuzzer's input, and how such an input is mutated.
//
// The input is a sequence of frames, each with its length before it: two bytes, little-endian. A
// frame that is cut off is as long as what is left. So every input means something, and a corpus
// can be made by hand.

#ifndef TENON_TESTS_FUZZ_FRAME_INPUT_H_
#define TENON_TESTS_FUZZ_FRAME_INPUT_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::fuzz {

inline constexpr size_t kMostFrames = 64;  // what follows is ignored

std::vector<std::string> SplitFrames(std::string_view input);
std::string JoinFrames(const std::vector<std::string>& frames);

// Changes one field somewhere in the message: sets, clears, repeats, or gives a value that is often
// wrong (the ends of its range, one more, one less).
void MutateMessage(google::protobuf::Message* message, std::minstd_rand* random);

// One step on whole frames, on the fields of one (which is parsed as `prototype`) or on its bytes.
void MutateFrames(const google::protobuf::Message& prototype, std::vector<std::string>* frames,
                  std::minstd_rand* random);

// LLVMFuzzerCustomMutator for inputs of frames: one or a few such steps; now and then libFuzzer's
// own.
size_t MutateInput(const google::protobuf::Message& prototype, uint8_t* data, size_t size,
                   size_t max_size, unsigned seed);

}  // namespace tenon::fuzz

#endif  // TENON_TESTS_FUZZ_FRAME_INPUT_H_
