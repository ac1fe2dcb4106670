// How much memory this process has, and may still take.
#pragma once

#include <cstdint>

namespace lockstep {

// The smaller of what the machine has free and what its control group allows.
int64_t available_memory_bytes();

// What this process holds in memory now, mapped files included.
int64_t resident_memory_bytes();

// What is freed is kept for the next allocation: for work that needs large pieces again and again.
void keep_freed_memory();

}  // namespace lockstep
