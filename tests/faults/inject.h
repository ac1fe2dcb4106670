// What the system gives is refused on demand: memory (operator new) and threads (pthread_create) of
// the program that this is linked into.
#pragma once

#include <cstdint>

namespace lockstep::faults {

enum class Refuse {
  kOne,
  kAllFrom,
  // As a system does that has no more memory: large requests fail, small ones get what the program
  // had set aside for that moment (std::new_handler).
  kLargeFrom,
};

// Refuses the `number`-th request from now on (1: the next), alone or with all that follow.
void refuse_memory(int64_t number, Refuse what);
void refuse_threads(int64_t number, Refuse what);

// Which request to refuse after this one. All at first, then ever larger steps: later ones are
// mostly alike. The steps are small where LOCKSTEP_SLOW is set.
int64_t next_point(int64_t number);

// nlohmann::json takes memory in its destructor, 16 bytes a value, and cannot fail there. Where it
// is at work, requests of such sizes are granted, always.
void grant_json(bool always);

// Everything is granted again. Whether something was refused since.
bool grant();

// Pieces of memory that are in use.
int64_t live_allocations();

}  // namespace lockstep::faults
