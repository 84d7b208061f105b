// Messages of the JSON library as they are told to the caller.

#ifndef TENON_BACKENDS_CORE_JSON_ERROR_H_
#define TENON_BACKENDS_CORE_JSON_ERROR_H_

#include <string>
#include <string_view>

namespace tenon {

// What an exception of nlohmann's JSON library says, without its own ids: "line 4, column 7: syntax
// error while parsing object - unexpected string literal; expected '}'". At most 256 bytes: the
// library repeats what it read last, which may be all of a file. Any other text stays as it is, but
// for its length.
std::string JsonErrorText(std::string_view what);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_JSON_ERROR_H_
