// Traces and other files that a suite reads and leaves.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace lockstep::suite {

// A folder and those above it.
Result<void> make_folder(const std::string& path);
Result<void> write_text(const std::string& path, const std::string& text);

// The trace that an engine left: a folder, or a JSON Lines log, which becomes a trace in
// `unpacked`. Renamed to our names. One that is not whole is an error.
Result<trace::Trace> open_recorded(const std::string& path, const std::string& unpacked);

// A copy of a folder of files. `link`: by hard links, where the file system has them.
Result<void> copy_folder(const std::string& from, const std::string& to, bool link);

}  // namespace lockstep::suite
