// Keeps exit() from destroying static objects, such as llama.cpp's list of devices and its tables of names. Any call
// may use them, and threads may still be inside a call while the process ends.
//
// A program's static objects register their destructors with __cxa_atexit(). This definition replaces the C library's
// in the program or shared library that contains it, and only there. The shared library is never unloaded. Windows ends
// all other threads before it destroys the static objects of a DLL.

#if defined(__unix__) || defined(__APPLE__)
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void *), void *, void *);
extern "C" int __cxa_atexit(void (*)(void *), void *, void *) { return 0; }
#endif
