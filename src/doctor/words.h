// A diagnosis in words.
#pragma once

#include <string>

#include "doctor/search.h"

namespace lockstep::doctor {

// One sentence, from the clause in `text` and the numbers.
std::string sentence(const Diagnosis& diagnosis);
// What is to be said where nothing explains an error, a clause.
std::string unknown_clause(const Explanation& explanation);

}  // namespace lockstep::doctor
