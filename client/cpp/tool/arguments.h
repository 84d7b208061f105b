// Command lines by table: the parser, its errors and the help texts come from one description.

#ifndef TENON_CLIENT_CPP_TOOL_ARGUMENTS_H_
#define TENON_CLIENT_CPP_TOOL_ARGUMENTS_H_

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::tool {

// One option, written --name VALUE or --name=VALUE, or --name alone when it takes no value.
struct Option {
  std::string name;   // without the dashes
  std::string value;  // what stands for the value in help texts; empty: it takes none
  std::string help;
  bool repeatable = false;
  std::vector<std::string> choices = {};  // all values that there are; empty: any
};

// What a command takes.
struct CommandSpec {
  std::string name;
  std::string usage;    // the positional arguments
  std::string summary;  // one line
  std::string details;  // the rest of the help text
  std::string example;  // one command line that works
  // What the exit codes say; empty: kExitCodes.
  std::string exit_codes;
  std::vector<Option> options;
  size_t min_positionals = 0;
  size_t max_positionals = 0;
  std::vector<std::string> choices;  // first words that there are among them; empty: files
};

// Of commands that call a server, and of the others.
inline constexpr const char* kExitCodes =
    "0 success, 2 usage or input, 3 the server refused, 4 it can't be reached, 130 interrupted.";
inline constexpr const char* kLocalExitCodes = "0 success, 2 usage or input.";

// What was given.
class Arguments {
 public:
  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }
  // The value of an option that may stand once; nullopt when it is not given.
  std::optional<std::string> Get(std::string_view name) const;
  std::vector<std::string> All(std::string_view name) const;
  const std::vector<std::string>& positionals() const { return positionals_; }

 private:
  friend absl::StatusOr<Arguments> ParseArguments(const CommandSpec& spec,
                                                  std::span<const std::string> arguments);
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positionals_;
};

// Parses what follows the name of the command. Options and positional arguments may mix; "--" ends
// the options; "-" and what begins with "->" are positional. Every command knows --help (and -h);
// where it is given, missing arguments are no error. BAD_PARAMETER with the option as field:
// unknown (with the nearest known one), given twice, without its value, or with one that it does
// not take; too few or too many arguments.
absl::StatusOr<Arguments> ParseArguments(const CommandSpec& spec,
                                         std::span<const std::string> arguments);

// The help text of a command.
std::string HelpText(const CommandSpec& spec);

// The candidate that is most like `word`; empty when none is.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_ARGUMENTS_H_
