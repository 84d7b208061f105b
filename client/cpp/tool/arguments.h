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
};

// What a command takes.
struct CommandSpec {
  std::string name;
  std::string usage;    // the positional arguments
  std::string summary;  // one line
  std::string details;  // the rest of the help text
  std::vector<Option> options;
  size_t min_positionals = 0;
  size_t max_positionals = 0;
};

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
