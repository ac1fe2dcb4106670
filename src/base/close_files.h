// Files that are open here and must not be open in a program that is started (posix_spawn).
#pragma once

#include <spawn.h>

namespace lockstep {

// Closes all files from `first` on in the program.
void add_close_from(posix_spawn_file_actions_t& actions, int first);

// The same, file by file, for C libraries before glibc 2.34. A file that another thread opens
// meanwhile stays open in the program.
void add_close_each(posix_spawn_file_actions_t& actions, int first);

}  // namespace lockstep
