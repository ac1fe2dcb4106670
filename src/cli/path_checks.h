// Paths on the command line, looked at before any work is done. Messages follow an option's name.
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep::cli {

Result<void> check_input_file(const std::string& path);
// "-" is standard input.
Result<void> check_input_file_or_stdin(const std::string& path);
// A file that is there is fine here: whether it may be replaced is the command's matter.
Result<void> check_output_file(const std::string& path);
Result<void> check_trace(const std::string& path);
Result<void> check_trace_or_log(const std::string& path);
// A folder that is there is fine here.
Result<void> check_new_folder(const std::string& path);
Result<void> check_no_dash(const std::string& path);

}  // namespace lockstep::cli
