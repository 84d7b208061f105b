// The JSON form of networks and paths: what network files and plan files share. Private to this
// room.

#ifndef TENON_BACKENDS_CORE_NETWORK_JSON_H_
#define TENON_BACKENDS_CORE_NETWORK_JSON_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/core/error.h"
#include "backends/core/network.h"

namespace tenon::network_json {

using Json = nlohmann::json;

// Parses an object and hands it to `read`. Fails with `reason` and the field "json" for malformed
// text, for one over 16 MiB, for nesting over 32 levels and for what is no object. `what` names the
// file in the error that memory is over. Exceptions of the library do not leave it.
absl::Status ReadObject(std::string_view text, Reason reason, std::string_view what,
                        const std::function<absl::Status(const Json&)>& read);

// The value of a key, or null when it is absent.
const Json* Find(const Json& object, const char* key);

// An error about the value of `key`, which is also the field.
Error BadValue(Reason reason, const std::string& key, const std::string& what);

// The integer in `value`, if it is one and fits.
bool ReadInteger(const Json& value, int64_t* result);

absl::StatusOr<std::string> ReadString(const Json& value, Reason reason, const std::string& key);

// A list of index names, which may be written as integers. `where` says which list of the key.
absl::StatusOr<std::vector<std::string>> ReadNames(const Json& value, Reason reason,
                                                   const std::string& key,
                                                   const std::string& where);

// "inputs" and "output".
absl::Status ReadTensors(const Json& file, Network* network);
// "inputs", "output" and "size_dict".
absl::StatusOr<Network> ReadNetwork(const Json& file);

// A list of lists of integers.
absl::StatusOr<std::vector<std::vector<int64_t>>> ReadSteps(const Json& value,
                                                            const std::string& key);
// "path_ssa" or "path_linear", if one is there.
absl::StatusOr<std::optional<PathSteps>> ReadPath(const Json& file);

}  // namespace tenon::network_json

#endif  // TENON_BACKENDS_CORE_NETWORK_JSON_H_
