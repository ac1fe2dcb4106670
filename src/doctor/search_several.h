// Several mistakes at once in what one checkpoint shows: each on rows of its own, or all on the
// same rows. The first is put in place, and the rest is searched with it.
#pragma once

#include "doctor/search.h"

namespace lockstep::doctor {

// `trials`: of the search that found no single cause; its best are judged at all rows here.
void explain_by_several(Examination& examination, std::vector<Trial>& trials, int depth,
                        Explanation& out);

// What explains nearly all of the error, at every row that was tried, and has no number that was
// fitted: it is one of the mistakes, and what it leaves is another that nothing explains.
std::optional<Trial> explains_nearly_all(Examination& examination, std::vector<Trial>& trials);

}  // namespace lockstep::doctor
