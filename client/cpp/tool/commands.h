// The commands of `tenon`.

#ifndef TENON_CLIENT_CPP_TOOL_COMMANDS_H_
#define TENON_CLIENT_CPP_TOOL_COMMANDS_H_

#include <span>
#include <string>

#include "client/cpp/tool/arguments.h"
#include "client/cpp/tool/session.h"

namespace tenon::tool {

struct Command {
  CommandSpec (*spec)();
  // The exit code.
  int (*run)(const Arguments& arguments, const Session& session);
};

CommandSpec ContractSpec();
int RunContract(const Arguments& arguments, const Session& session);
CommandSpec EstimateSpec();
int RunEstimate(const Arguments& arguments, const Session& session);
CommandSpec PlanSpec();
int RunPlan(const Arguments& arguments, const Session& session);
CommandSpec MeasureCommandSpec();
int RunMeasure(const Arguments& arguments, const Session& session);
CommandSpec MeasuresSpec();
int RunMeasures(const Arguments& arguments, const Session& session);
CommandSpec BenchSpec();
int RunBench(const Arguments& arguments, const Session& session);
CommandSpec InfoSpec();
int RunInfo(const Arguments& arguments, const Session& session);
CommandSpec VersionSpec();
int RunVersion(const Arguments& arguments, const Session& session);

// The whole program: finds the command, parses, prints help, runs; never throws. `arguments` are
// those after the program's name.
int RunTool(std::span<const std::string> arguments, const Session& session);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_COMMANDS_H_
