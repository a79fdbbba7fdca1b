// Loads the DLL, uses it, unloads it, and loads it again: load_library DLL MODEL
//
// The DLL is copied to a path with spaces and characters of several languages, and is loaded from there. One thread
// uses every load and ends last. At the end, the process exits with an open model.

#include <stdio.h>
#include <windows.h>

#include "eliza/eliza_inference.h"

static const int n_loads = 3;
static wchar_t copy[MAX_PATH + 64];
static const char * model_path;

static int fail(const char * what) {
    fprintf(stderr, "load_library: %s (Windows error %lu)\n", what, GetLastError());
    return 1;
}

static FARPROC function(HMODULE dll, const char * name) {
    const FARPROC found = GetProcAddress(dll, name);
    if (found == NULL) {
        fprintf(stderr, "load_library: the DLL has no %s\n", name);
        ExitProcess(1);
    }
    return found;
}

// Loads the DLL and chooses a label. Closes the model and unloads the DLL, unless they are to stay open.
static int choose_with(const wchar_t * path, int keep_open) {
    static const char * const labels[] = {"REPLY", "IGNORE"};
    const HMODULE dll = LoadLibraryW(path);
    if (dll == NULL) {
        return fail("cannot load the DLL");
    }
#define FUNCTION(name) __typeof__(&name) p_##name = (__typeof__(&name))(void *)function(dll, #name)
    FUNCTION(eliza_inference_create);
    FUNCTION(eliza_inference_choose);
    FUNCTION(eliza_inference_destroy);
    char * err = NULL;
    eliza_choice_t choice = {0};
    EliInferenceContext * ctx = p_eliza_inference_create(model_path, &err);
    if (ctx == NULL || p_eliza_inference_choose(ctx, "Reply?", labels, 2, NULL, &choice, NULL, &err) != 0) {
        fprintf(stderr, "load_library: %s\n", err);
        return 1;
    }
    printf("chose %s\n", labels[choice.label]);
    if (keep_open) {
        return 0;
    }
    p_eliza_inference_destroy(ctx);
    if (!FreeLibrary(dll)) {
        return fail("cannot unload the DLL");
    }
    return GetModuleHandleW(path) == NULL ? 0 : fail("the DLL is still loaded");
}

static DWORD WINAPI use_every_load(LPVOID unused) {
    (void)unused;
    for (int i = 0; i < n_loads; ++i) {
        if (choose_with(copy, 0) != 0) {
            return 1;
        }
    }
    return 0;
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: load_library DLL MODEL\n");
        return 2;
    }
    model_path = argv[2];
    wchar_t folder[MAX_PATH], source[MAX_PATH];
    if (GetTempPathW(MAX_PATH, folder) == 0 || MultiByteToWideChar(CP_UTF8, 0, argv[1], -1, source, MAX_PATH) == 0) {
        return fail("cannot find the DLL");
    }
    swprintf(copy, MAX_PATH + 64, L"%lseliza \u00e4\u6a21 %lu.dll", folder, GetCurrentProcessId());
    if (!CopyFileW(source, copy, FALSE)) {
        return fail("cannot copy the DLL");
    }
    DWORD status = 1;
    const HANDLE thread = CreateThread(NULL, 0, use_every_load, NULL, 0, NULL);
    WaitForSingleObject(thread, INFINITE);
    GetExitCodeThread(thread, &status);
    if (status != 0) {
        return 1;
    }
    // A file of a loaded DLL cannot be deleted.
    if (!DeleteFileW(copy)) {
        return fail("the unloaded DLL is still in use");
    }
    return choose_with(source, 1);
}
