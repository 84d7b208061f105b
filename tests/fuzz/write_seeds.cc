// Writes the good calls of tests/load as seeds of the targets that take frames: write_seeds CORPUS.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/frame_input.h"
#include "tests/load/frame_scripts.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
    return 2;
  }
  const std::filesystem::path corpus(argv[1]);
  int number = 0;
  for (const auto& call : tenon::testing::GoodCalls()) {
    std::string seed = tenon::fuzz::JoinFrames(call.frames);
    const std::string method = call.method.substr(call.method.rfind('/') + 1);
    std::string target;
    if (method == "Contract") target = "contract_frames";
    if (method == "SubmitContraction") target = "job_frames";
    if (method == "Measure") target = "measure_frames";
    if (method == "CreateDataset" || method == "CreateTensor") {
      target = "upload_frames";
      seed.insert(0, 1, method == "CreateDataset" ? '0' : '1');
    }
    ++number;
    if (target.empty()) continue;
    std::filesystem::create_directories(corpus / target);
    std::ofstream(corpus / target / ("good_call_" + std::to_string(number)), std::ios::binary)
        << seed;
  }
  return 0;
}
