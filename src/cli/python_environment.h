// A Python that can run our package with another engine in it: the user's, or one that we make.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace lockstep::cli {

struct PythonNeeds {
  std::string name;                   // of the environment that is made where nothing else serves
  std::vector<std::string> modules;   // that must be there to import
  std::vector<std::string> packages;  // what pip installs to have them
  std::string cost;                   // of installing them, for people
};

// The folder to import our own package from, which came with the program.
Result<std::string> package_folder();

// The Python to start: `given` where it is not empty, else python3 or an environment of ours that
// has all that is needed. Where none has, it is made after asking on the terminal, or at once where
// `yes`. What is done goes to standard error.
Result<std::string> find_python(const PythonNeeds& needs, const std::string& given, bool yes);

// The command that runs a module of our package. Nothing is imported from the current folder,
// which may hold anybody's files.
std::vector<std::string> module_command(const std::string& python, const std::string& folder,
                                        const std::string& module);

}  // namespace lockstep::cli
