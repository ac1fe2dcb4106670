// The tables of a suite's file. Within this folder.
#pragma once

#include "suite/suite.h"
#include "suite/toml_reader.h"

namespace lockstep::suite {

Result<Engine> read_engine(const TomlTable& table, const std::string& name);
// All cases of one table: one a model. `look`: patterns are the files that there are.
Result<std::vector<Case>> read_cases(const TomlTable& table, const Suite& suite, bool look);
Result<Known> read_known(const TomlTable& table);

}  // namespace lockstep::suite
