// What stands in braces in a suite's commands: {model}, {tokens}, ...
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::suite {

std::vector<std::string> placeholders();

// Every {word} of `text`, in order. Braces around anything else are text.
std::vector<std::string> words_in_braces(std::string_view text);

// Each {word} becomes its value; what values hold is not looked at again. `quoted`: as one word of
// a shell, whatever it holds.
std::string fill(std::string_view text, const std::map<std::string, std::string>& values,
                 bool quoted);

std::string shell_quoted(std::string_view text);

}  // namespace lockstep::suite
