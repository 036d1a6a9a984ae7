// MXFP4_EVERY_WIDTH marks a function that is compiled once for each width of x86's vectors; the program runs the widest
// one that the machine supports.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // which would look at the choice before it is ready
#define MXFP4_EVERY_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MXFP4_EVERY_WIDTH
#endif
