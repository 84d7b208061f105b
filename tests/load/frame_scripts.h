// Good calls of every method that a client streams to, and of those about jobs, as frames: where
// nonsense starts from.

#ifndef TENON_TESTS_LOAD_FRAME_SCRIPTS_H_
#define TENON_TESTS_LOAD_FRAME_SCRIPTS_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

namespace tenon::testing {

struct GoodCall {
  std::string method;
  const google::protobuf::Message* request;  // the type of its frames
  std::vector<std::string> frames;
};

// All small: a server answers each within milliseconds.
std::vector<GoodCall> GoodCalls();

// Calls about the jobs with these names, at least one; one call of each method takes one request.
std::vector<GoodCall> JobCalls(const std::vector<std::string>& jobs);

// A submission, which makes a job.
GoodCall Submission(bool with_values);

}  // namespace tenon::testing

#endif  // TENON_TESTS_LOAD_FRAME_SCRIPTS_H_
