// One function compiled for several instruction sets, chosen when the program is loaded.

#ifndef TENON_BACKENDS_CORE_CLONES_H_
#define TENON_BACKENDS_CORE_CLONES_H_

// Sanitizers intercept too late for the resolvers of such functions, so there they have one
// version.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TENON_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TENON_CLONES
#endif

#endif  // TENON_BACKENDS_CORE_CLONES_H_
