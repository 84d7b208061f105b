// Jobs for people.

#ifndef TENON_CLIENT_CPP_TOOL_JOB_TEXT_H_
#define TENON_CLIENT_CPP_TOOL_JOB_TEXT_H_

#include <string>

#include "tenon/v1/job.pb.h"

namespace tenon::tool {

// "jobs/{id}" of what was given: the name, or the id alone.
std::string JobName(const std::string& argument);
// What there is to say of a job, in lines.
std::string FormatJob(const v1::Job& job);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_JOB_TEXT_H_
