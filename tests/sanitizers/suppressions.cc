// Everything that sanitizers are told to ignore or to do otherwise, in every sanitized test
// program.
//
// An entry hides bugs: each says why it is none of ours, in whose code it is, and when it can go.
// Undefined behaviour has no entries: the first one stops the program.

#if defined(__SANITIZE_ADDRESS__)
extern "C" const char* __lsan_default_suppressions() {
  return
      // tests/sanitizers/planted_bug.cc, so that the tests see that this file is heard.
      "leak:SuppressedLeak\n";
}
#endif

#if defined(__SANITIZE_THREAD__)
extern "C" const char* __tsan_default_suppressions() { return ""; }
#endif
