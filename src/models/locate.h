// Where model files lie: beside the program, installed with it, or in the user's cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/resolve.h"

namespace lockstep::models {

struct Folder {
  std::string path;
  bool shipped = false;  // belongs to the program; else the cache that `pull` fills
};

struct LocalModel {
  std::string name;  // the file's name without .gguf
  std::string path;
  int64_t size_bytes = 0;
  bool shipped = false;
};

// ($XDG_CACHE_HOME or ~/.cache)/lockstep/models; an error where neither variable is set.
Result<std::string> cache_folder();

// In the order of search. They need not exist.
std::vector<Folder> model_folders();

// Every .gguf file in the folders, by folder and then by name; of two with one name the first.
std::vector<LocalModel> local_models(const std::vector<Folder>& folders);

// The file for what -m says: a path, or the name of a shipped or downloaded model. The error lists
// near names and where was looked, or says how to download a well-known model.
Result<std::string> find_model(const std::string& name, const std::vector<Folder>& folders);
Result<std::string> find_model(const std::string& name);

}  // namespace lockstep::models
