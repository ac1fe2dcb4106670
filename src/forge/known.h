// Well-known models by name, so that files of their exact shapes can be forged.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "forge/spec.h"

namespace lockstep::forge {

struct KnownModel {
  std::string_view name;
  Spec spec;
  int64_t parameters;  // in all; what the plan must add up to
};

std::span<const KnownModel> known_models();

// An unknown name is an error that lists the known ones.
Result<const KnownModel*> find_known_model(std::string_view name);

}  // namespace lockstep::forge
