// Memory that is set aside for the moment when there is none left. Ending a job takes some: an
// error has a text, and nlohmann::json takes memory in its destructor, where it cannot fail.
#pragma once

namespace lockstep {

// Sets the reserve aside, at first and again after it was used. False: there is no memory for it.
// From the first call on, a request for memory that fails frees the reserve and is tried again;
// only where that does not help it throws. Whoever begins something that may fail asks first.
bool hold_memory_reserve() noexcept;

// A part of the reserve is for the calling thread alone: others fail before they get it.
void favour_this_thread() noexcept;

}  // namespace lockstep
