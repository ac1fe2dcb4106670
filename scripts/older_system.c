/* What the C++ library of a newer compiler takes from its own, newer C library. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Since glibc 2.32: whether no second thread was ever started. "No" is always safe. */
HIDDEN char __libc_single_threaded = 0;

/* Since glibc 2.36. */
HIDDEN uint32_t arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) abort();
  return number;
}
